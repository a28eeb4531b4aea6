#include "agent/store/tree_trust.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "agent/store/stored_files.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/dir_walk.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/tree/file_hasher.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;

constexpr size_t kReadAtOnce = 256;  // files

absl::Status WasWrittenTo(const FileEntry& entry) {
  return absl::DataLossError(absl::StrCat(absl::CHexEscape(entry.path()), " was written to"));
}

// Returns the stat of a stored file. DATA_LOSS when it is no file of the entry's size.
absl::StatusOr<struct stat> StatStored(int dir, const std::string& name, const FileEntry& entry) {
  struct stat info {};
  if (fstatat(dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno != ENOENT) return PathError("check", entry.path());
    return absl::DataLossError(absl::StrCat(absl::CHexEscape(entry.path()), " is gone"));
  }
  if (!S_ISREG(info.st_mode) || int64_t{info.st_size} != entry.size()) return WasWrittenTo(entry);
  return info;
}

// Reads files, some at a time on several threads, and compares them with their entries.
class Reading {
 public:
  absl::Status Add(int dir, const std::string& name, const FileEntry& entry, FileIdentity& result) {
    Pending pending;
    pending.fd.reset(OpenBelow(dir, name, O_RDONLY | O_NONBLOCK, 0, entry.path()));
    struct stat info {};
    if (!pending.fd.valid() || fstat(pending.fd.get(), &info) != 0) {
      return PathError("check", entry.path());
    }
    // A later write in the same tick would leave the ctime as it is.
    const int64_t changed_ns = StoredIdentity(info).ctime_ns;
    if (Clock::Real().Now() >= absl::FromUnixNanos(changed_ns)) PassClockTick(changed_ns);
    if (fstat(pending.fd.get(), &info) != 0) return PathError("check", entry.path());
    pending.entry = entry;
    pending.then = StoredIdentity(info);
    pending.result = &result;
    pending_.push_back(std::move(pending));
    return pending_.size() < kReadAtOnce ? absl::OkStatus() : Flush();
  }

  absl::Status Flush() {
    std::vector<FileHasher::File> files;
    for (const Pending& pending : pending_) {
      files.push_back({pending.fd.get(), pending.entry.size(), {}, absl::OkStatus()});
    }
    FileHasher().Hash(files, nullptr);
    for (size_t i = 0; i < files.size(); ++i) {
      const Pending& pending = pending_[i];
      RETURN_IF_ERROR(files[i].status);
      FileEntry found;
      SetHashes(files[i].part_hashes, found);
      struct stat info {};
      // Somebody may have written to it behind the place that was being read.
      if (found.sha256() != pending.entry.sha256() || fstat(pending.fd.get(), &info) != 0 ||
          !(StoredIdentity(info) == pending.then)) {
        return WasWrittenTo(pending.entry);
      }
      *pending.result = pending.then;
    }
    pending_.clear();
    return absl::OkStatus();
  }

 private:
  struct Pending {
    UniqueFd fd;
    FileEntry entry;
    FileIdentity then;
    FileIdentity* result = nullptr;
  };
  std::vector<Pending> pending_;
};

}  // namespace

void PassClockTick(int64_t time_ns) {
  Clock& clock = Clock::Real();
  const absl::Duration since = clock.Now() - absl::FromUnixNanos(time_ns);
  if (since < kFileClockTick) clock.SleepFor(std::min(kFileClockTick - since, kFileClockTick));
}

std::string KnownPath(const std::string& trees, absl::string_view digest) {
  return JoinPath(trees, absl::StrCat(kKnownPrefix, digest));
}

FileIdentity StoredIdentity(const struct stat& info) {
  FileIdentity identity = FileIdentity::Of(info);
  identity.device = 0;
  return identity;
}

KnownFiles::KnownFiles(const std::string& trees, absl::string_view digest)
    : cache_(KnownPath(trees, digest), Clock::Real()) {}

bool KnownFiles::Has(const FileEntry& entry, const struct stat& info) {
  const auto found = cache_.Find(entry.path(), StoredIdentity(info));
  return found.has_value() && found->sha256 == entry.sha256() && S_ISREG(info.st_mode) &&
         int64_t{info.st_size} == entry.size();
}

std::vector<bool> FindKnown(const std::string& trees, absl::string_view digest, int root_fd,
                            const Manifest& manifest) {
  std::vector<bool> known(static_cast<size_t>(manifest.size()), false);
  KnownFiles files(trees, digest);
  DirWalk walk(root_fd);
  for (int64_t i = 0; i < manifest.size(); ++i) {
    const FileEntry entry = manifest[i];
    if (entry.kind() != FileEntry::KIND_FILE) continue;
    const absl::StatusOr<int> dir = walk.Open(ParentPath(entry.path()));
    struct stat info {};
    known[static_cast<size_t>(i)] =
        dir.ok() &&
        fstatat(*dir, BaseName(entry.path()).c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        files.Has(entry, info);
  }
  return known;
}

absl::StatusOr<StoredIdentities> VerifyStoredTree(const std::string& trees,
                                                  absl::string_view digest, int root_fd,
                                                  const Manifest& manifest) {
  StoredIdentities identities(static_cast<size_t>(manifest.size()));
  KnownFiles known(trees, digest);
  Reading reading;
  bool all_known = true;
  RETURN_IF_ERROR(ForEachFile(
      root_fd, manifest,
      [&](int dir, const std::string& name, const FileEntry& entry, int64_t i) -> absl::Status {
        ASSIGN_OR_RETURN(const struct stat info, StatStored(dir, name, entry));
        FileIdentity& identity = identities[static_cast<size_t>(i)];
        identity = StoredIdentity(info);
        if (known.Has(entry, info)) return absl::OkStatus();
        all_known = false;
        return reading.Add(dir, name, entry, identity);
      }));
  RETURN_IF_ERROR(reading.Flush());
  if (!all_known) RETURN_IF_ERROR(RememberStored(trees, digest, manifest, identities));
  return identities;
}

absl::Status CheckStillSame(int root_fd, const Manifest& manifest, const StoredIdentities& then,
                            const std::vector<bool>& chosen) {
  return ForEachFile(
      root_fd, manifest,
      [&](int dir, const std::string& name, const FileEntry& entry, int64_t i) -> absl::Status {
        if (!chosen.empty() && !chosen[static_cast<size_t>(i)]) return absl::OkStatus();
        ASSIGN_OR_RETURN(const struct stat info, StatStored(dir, name, entry));
        if (StoredIdentity(info) == then[static_cast<size_t>(i)]) return absl::OkStatus();
        return absl::AbortedError(
            absl::StrCat(absl::CHexEscape(entry.path()), " changes while it is being copied"));
      });
}

absl::Status MarkStored(int root_fd, const Manifest& manifest, StoredIdentities& identities) {
  identities.resize(static_cast<size_t>(manifest.size()));
  Reading reading;
  RETURN_IF_ERROR(ForEachFile(
      root_fd, manifest,
      [&](int dir, const std::string& name, const FileEntry& entry, int64_t i) -> absl::Status {
        ASSIGN_OR_RETURN(struct stat info, StatStored(dir, name, entry));
        FileIdentity& identity = identities[static_cast<size_t>(i)];
        if (info.st_nlink > 1) {
          if (identity == StoredIdentity(info)) return absl::OkStatus();
          return reading.Add(dir, name, entry, identity);
        }
        const struct timespec times[2] = {{kStoredMtime, 0}, {kStoredMtime, 0}};
        if (int64_t{info.st_mtime} != kStoredMtime &&
            utimensat(dir, name.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0) {
          return PathError("set the time of", entry.path());
        }
        ASSIGN_OR_RETURN(info, StatStored(dir, name, entry));
        identity = StoredIdentity(info);
        return absl::OkStatus();
      }));
  return reading.Flush();
}

absl::Status RememberStored(const std::string& trees, absl::string_view digest,
                            const Manifest& manifest, const StoredIdentities& identities) {
  HashCache record(KnownPath(trees, digest), Clock::Real(), absl::ZeroDuration());
  for (int64_t i = 0; i < manifest.size(); ++i) {
    const FileEntry entry = manifest[i];
    if (entry.kind() != FileEntry::KIND_FILE) continue;
    record.Keep(entry.path(), identities[static_cast<size_t>(i)], {entry.sha256(), ""});
  }
  return record.Save();
}

}  // namespace gpuctl
