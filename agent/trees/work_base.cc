#include "agent/trees/work_base.h"

#include <sys/stat.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/trees/live_entry.h"
#include "common/base/status_macros.h"
#include "common/files/dir_walk.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;

bool IsRemoval(const FileEntry& intended) { return intended.kind() == FileEntry::KIND_UNSPECIFIED; }

// Returns a reader of the file, or an empty one when there is no such file.
absl::StatusOr<ManifestReader> OpenIfThere(const std::string& path) {
  absl::StatusOr<ManifestReader> reader = ManifestReader::Open(path);
  if (absl::IsNotFound(reader.status())) return ManifestReader();
  return reader;
}

// Returns which reader has the next path, in the order of paths: -1 for a, 1 for b, 0 for both.
int Nearer(const ManifestReader& a, const ManifestReader& b) {
  if (b.AtEnd()) return -1;
  if (a.AtEnd()) return 1;
  if (a.entry().path() == b.entry().path()) return 0;
  return PathLess(a.entry().path(), b.entry().path()) ? -1 : 1;
}

absl::StatusOr<std::optional<FileEntry>> Look(DirWalk& live, const std::string& path) {
  const absl::StatusOr<int> dir = live.Open(ParentPath(path));
  // An entry below a file or a symlink does not exist either.
  if (absl::IsNotFound(dir.status()) || absl::IsInvalidArgument(dir.status())) return std::nullopt;
  RETURN_IF_ERROR(dir.status());
  const std::optional<struct stat> info = StatAt(*dir, BaseName(path));
  if (!info.has_value()) return std::nullopt;
  std::string hashes;
  ASSIGN_OR_RETURN(FileEntry now, LookAt(*dir, BaseName(path), *info, hashes));
  return now;
}

// Returns the entry that the work directory has: the intended one, or that of the base (null when
// the base has none). If the job's own entry is there, it is neither, and the base stays as it is.
absl::StatusOr<const FileEntry*> Found(DirWalk& live, const FileEntry* base,
                                       const FileEntry& intended) {
  ASSIGN_OR_RETURN(const std::optional<FileEntry> now, Look(live, intended.path()));
  if (!now.has_value()) {
    // One kind cannot replace another in one step: for a moment nothing is there.
    const bool kinds_differ = base != nullptr && (base->kind() == FileEntry::KIND_DIRECTORY) !=
                                                     (intended.kind() == FileEntry::KIND_DIRECTORY);
    return IsRemoval(intended) || kinds_differ ? nullptr : base;
  }
  const bool as_base = base != nullptr && SameContent(*now, *base);
  if (!SameContent(*now, intended)) return base;
  return as_base && now->mode() != intended.mode() ? base : &intended;
}

}  // namespace

std::string SyncLockPath(const JobPaths& job) { return JoinPath(job.dir, "sync.lock"); }

std::string WorkManifestPath(const JobPaths& job) { return JoinPath(job.dir, "work.manifest"); }

WorkBase::WorkBase(const JobPaths& job)
    : dir_(job.dir),
      manifest_(WorkManifestPath(job)),
      moved_(JoinPath(job.dir, "work.base")),
      intent_(JoinPath(job.dir, "work.intent")) {}

absl::StatusOr<Manifest> WorkBase::Read() const {
  absl::StatusOr<std::string> bytes = ReadFileToString(manifest_, kMaxManifestBytes);
  if (absl::IsNotFound(bytes.status())) return Manifest();
  if (!bytes.ok()) return bytes.status();
  return ParseManifest(*std::move(bytes));
}

absl::Status WorkBase::Begin(const Manifest& base, const Manifest& theirs,
                             const PathTest& kept) const {
  ASSIGN_OR_RETURN(ManifestWriter intent, ManifestWriter::Create(intent_));
  int64_t b = 0;
  for (int64_t t = 0; t < theirs.size() || b < base.size();) {
    FileEntry before;
    if (b < base.size()) before = base[b];
    FileEntry after;
    if (t < theirs.size()) after = theirs[t];
    const bool same_path = b < base.size() && after.path() == before.path();
    const bool removed = !same_path && b < base.size() &&
                         (t == theirs.size() || PathLess(before.path(), after.path()));
    if (removed) {
      after = FileEntry();
      after.set_path(before.path());
    }
    const bool same = same_path && SameContent(before, after) && before.mode() == after.mode();
    if (!same && !kept(after.path())) RETURN_IF_ERROR(intent.Append(after));
    b += same_path || removed;
    t += !removed;
  }
  // Two renames need only one sync: if only one of them survives, nothing was touched yet.
  if (file_ops::Rename(manifest_, moved_) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, absl::StrCat("rename ", manifest_));
  }
  RETURN_IF_ERROR(intent.Publish());
  return SyncDirectory(dir_);
}

absl::Status WorkBase::Settle(int live_fd) const {
  if (PathExists(manifest_)) return Forget();
  ASSIGN_OR_RETURN(ManifestReader base, OpenIfThere(moved_));
  ASSIGN_OR_RETURN(ManifestReader intent, OpenIfThere(intent_));
  if (!PathExists(moved_) && !PathExists(intent_)) return absl::OkStatus();
  return Merge(base, intent, live_fd);
}

absl::Status WorkBase::Merge(ManifestReader& base, ManifestReader& intent, int live_fd) const {
  ASSIGN_OR_RETURN(ManifestWriter next, ManifestWriter::Create(manifest_));
  ManifestValidator validator;
  DirWalk live(live_fd);
  while (!base.AtEnd() || !intent.AtEnd()) {
    const int nearer = Nearer(base, intent);
    const FileEntry* entry = nearer <= 0 ? &base.entry() : nullptr;
    if (nearer >= 0) {
      ASSIGN_OR_RETURN(entry, Found(live, entry, intent.entry()));
    }
    // An entry that does not fit is left out, and so counts as the job's.
    if (entry != nullptr && validator.Add(*entry).ok()) RETURN_IF_ERROR(next.Append(*entry));
    if (nearer <= 0) RETURN_IF_ERROR(base.Advance());
    if (nearer >= 0) RETURN_IF_ERROR(intent.Advance());
  }
  return Publish(next);
}

absl::Status WorkBase::End(const Manifest& theirs, const PathTest& kept) const {
  ASSIGN_OR_RETURN(ManifestReader base, OpenIfThere(moved_));
  ASSIGN_OR_RETURN(ManifestWriter next, ManifestWriter::Create(manifest_));
  ManifestValidator validator;
  for (int64_t t = 0; t < theirs.size() || !base.AtEnd();) {
    FileEntry after;
    if (t < theirs.size()) after = theirs[t];
    const bool in_theirs =
        t < theirs.size() && (base.AtEnd() || !PathLess(base.entry().path(), after.path()));
    const bool in_base = !base.AtEnd() && (!in_theirs || base.entry().path() == after.path());
    const bool keeps = kept(in_theirs ? after.path() : base.entry().path());
    const FileEntry* entry = nullptr;
    if (keeps && in_base) entry = &base.entry();
    if (!keeps && in_theirs) entry = &after;
    // When a file was kept in place of a directory, for example, the entries below are not
    // compared.
    if (entry != nullptr && validator.Add(*entry).ok()) RETURN_IF_ERROR(next.Append(*entry));
    if (in_base) RETURN_IF_ERROR(base.Advance());
    t += in_theirs;
  }
  return Publish(next);
}

absl::Status WorkBase::End(const Manifest& theirs) const {
  // Without a base the intent was all of `theirs`, and it is there durably.
  if (!PathExists(moved_)) {
    if (file_ops::Rename(intent_, manifest_) != 0) {
      return ErrnoStatus(errno, absl::StrCat("rename ", intent_));
    }
    return SyncDirectory(dir_);
  }
  RETURN_IF_ERROR(WriteFileAtomic(manifest_, theirs.bytes()));
  return Forget();
}

absl::Status WorkBase::Publish(ManifestWriter& next) const {
  RETURN_IF_ERROR(next.Publish());
  RETURN_IF_ERROR(SyncDirectory(dir_));
  return Forget();
}

// Removes the other files, which mean nothing once the base has its name again.
absl::Status WorkBase::Forget() const {
  for (const std::string& path : {intent_, moved_}) {
    if (file_ops::Unlink(path) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("remove ", path));
    }
  }
  return absl::OkStatus();
}

}  // namespace gpuctl
