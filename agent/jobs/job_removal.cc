#include "agent/jobs/job_removal.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/base/processes.h"
#include "agent/results/beside_checkpoints.h"
#include "agent/results/result_links.h"
#include "agent/store/given_data.h"
#include "agent/trees/live_entry.h"
#include "agent/trees/work_base.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/tree/hash_cache.h"
#include "common/tree/manifest_file.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;
using gpuctl::v1::RemoveJobReply;

// The largest size of the names in a reply, in bytes. gRPC accepts 4 MiB.
constexpr size_t kMostNamedBytes = 1 << 20;
constexpr int64_t kBlockBytes = 512;  // the unit of st_blocks

absl::StatusOr<struct stat> Look(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("look at ", path));
  return info;
}

// Calls `visit` with the path and stat of everything below `dir`, in the order of PathLess. It
// enters a directory, or a symlink to one, for which `visit` returns true, and calls `leave` with
// its path afterwards. Paths begin with `relative`.
template <typename Visit>
absl::Status ForEachBelow(const std::string& dir, const std::string& relative, const Visit& visit,
                          const std::function<void(const std::string&)>& leave = nullptr) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(dir));
  for (const std::string& name : names) {
    const std::string path = JoinPath(dir, name);
    const std::string shown = relative.empty() ? name : JoinPath(relative, name);
    const absl::StatusOr<struct stat> info = Look(path);
    // Somebody else may work behind a symlink.
    if (absl::IsNotFound(info.status())) continue;
    RETURN_IF_ERROR(info.status());
    ASSIGN_OR_RETURN(const bool enter, visit(shown, *info));
    if (!enter) continue;
    RETURN_IF_ERROR(ForEachBelow(path, shown, visit, leave));
    if (leave) leave(shown);
  }
  return absl::OkStatus();
}

bool IsBelow(absl::string_view path, absl::string_view dir) {
  return path == dir || absl::StartsWith(path, absl::StrCat(dir, "/"));
}

// Fills in a reply's `left`.
class LeftFiles {
 public:
  explicit LeftFiles(RemoveJobReply& reply) : reply_(reply) {}

  void Add(const std::string& path, const struct stat& info) {
    Add(path, info, int64_t{info.st_size});
  }
  void Add(const std::string& path, const struct stat& info, int64_t size) {
    constexpr size_t kNumbersBytes = 32;
    reply_.set_left_count(reply_.left_count() + 1);
    reply_.set_left_bytes(reply_.left_bytes() + size);
    named_bytes_ += path.size() + kNumbersBytes;
    if (named_bytes_ > kMostNamedBytes) return;
    gpuctl::v1::Artifact& left = *reply_.add_left();
    left.set_path(path);
    left.set_size(size);
    left.set_modified_ms(FileIdentity::Of(info).mtime_ns / 1'000'000);
  }

 private:
  RemoveJobReply& reply_;
  size_t named_bytes_ = 0;
};

// The files in work/, compared with those that were pushed there.
class WorkListing {
 public:
  WorkListing(const JobPaths& job, StoredSpec stored, int64_t accepted_ns,
              const std::vector<std::string>& patterns, LeftFiles& left)
      : job_(job),
        stored_(std::move(stored)),
        accepted_ns_(accepted_ns),
        links_(job, patterns),
        real_job_(RealPath(job.dir)),
        left_(left) {}

  absl::Status Run() {
    if (!IsDirectory(job_.work)) return absl::OkStatus();
    // The manifest is missing without a work directory, and while a sync changes it. Then every
    // file counts as the job's.
    absl::StatusOr<ManifestReader> pushed = ManifestReader::Open(WorkManifestPath(job_));
    if (pushed.ok()) {
      pushed_ = *std::move(pushed);
    } else if (!absl::IsNotFound(pushed.status())) {
      return pushed.status();
    }
    for (const gpuctl::v1::DataTree& data : stored_.spec.data()) {
      data_.emplace_back(job_, data);
    }
    work_fd_.reset(file_ops::Open(job_.work, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    if (!work_fd_.valid()) return ErrnoStatus(errno, absl::StrCat("open ", job_.work));
    return ForEachBelow(
        job_.work, "",
        [this](const std::string& path, const struct stat& info) { return Visit(path, info); },
        [this](const std::string& path) {
          if (links_.behind() == JoinPath("work", path)) links_.Leave();
        });
  }

 private:
  absl::StatusOr<bool> Visit(const std::string& path, const struct stat& info) {
    if (S_ISDIR(info.st_mode)) return path != kTrainerKitPath && BaseName(path) != "__pycache__";
    if (S_ISLNK(info.st_mode)) return VisitLink(path, info);
    if (!S_ISREG(info.st_mode) || IsTrainerSettings(path)) return false;
    ASSIGN_OR_RETURN(const bool known, IsKnown(path, info));
    if (!known) left_.Add(JoinPath("work", path), info);
    return false;
  }

  absl::StatusOr<bool> VisitLink(const std::string& path, const struct stat& info) {
    const ResultLinks::Link link = links_.Look(path);
    if (link.kind == ResultLinks::Kind::kFollow) {
      links_.Enter(path, link);
      return true;
    }
    ASSIGN_OR_RETURN(const FileEntry* const pushed, Pushed(path));
    const std::string target = RealPath(JoinPath(job_.work, path));
    const bool ours = pushed != nullptr && pushed->kind() == FileEntry::KIND_SYMLINK;
    if (ours || target.empty() || IsBelow(target, real_job_) || IsBelow(real_job_, target)) {
      return false;
    }
    const int64_t bytes = ChangedBytes(target, accepted_ns_);
    if (bytes >= 0) left_.Add(JoinPath("work", path), info, bytes);
    return false;
  }

  // Returns the entry that was pushed at the path, or null. Call it in the order of paths.
  absl::StatusOr<const FileEntry*> Pushed(const std::string& path) {
    while (!pushed_.AtEnd() && PathLess(pushed_.entry().path(), path)) {
      RETURN_IF_ERROR(pushed_.Advance());
    }
    return !pushed_.AtEnd() && pushed_.entry().path() == path ? &pushed_.entry() : nullptr;
  }

  absl::StatusOr<bool> IsKnown(const std::string& path, const struct stat& info) {
    for (GivenData& data : data_) {
      if (IsBelow(path, data.path())) return IsKnownData(data, path, info);
    }
    ASSIGN_OR_RETURN(const FileEntry* const pushed, Pushed(path));
    if (pushed == nullptr) return false;
    const FileEntry& entry = *pushed;
    if (entry.kind() != FileEntry::KIND_FILE || entry.size() != int64_t{info.st_size}) return false;
    // Nobody has changed it since the job was accepted.
    if (FileIdentity::Of(info).ctime_ns < accepted_ns_) return true;
    std::string hashes;
    ASSIGN_OR_RETURN(const FileEntry now, LookAt(work_fd_.get(), path, info, hashes));
    return SameContent(now, entry);
  }

  absl::StatusOr<bool> IsKnownData(GivenData& data, const std::string& path,
                                   const struct stat& info) {
    // Nobody has changed it since the job was accepted.
    if (FileIdentity::Of(info).ctime_ns < accepted_ns_) return true;
    ASSIGN_OR_RETURN(const FileEntry* const entry, data.Find(path));
    if (entry == nullptr || entry->kind() != FileEntry::KIND_FILE ||
        entry->size() != int64_t{info.st_size}) {
      return false;
    }
    // Links to a stored file come and go, and that changes its ctime.
    if (data.IsStored(*entry, info)) return true;
    std::string hashes;
    ASSIGN_OR_RETURN(const FileEntry now, LookAt(work_fd_.get(), path, info, hashes));
    return SameContent(now, *entry);
  }

  const JobPaths& job_;
  const StoredSpec stored_;
  std::vector<GivenData> data_;
  const int64_t accepted_ns_;
  ResultLinks links_;
  const std::string real_job_;
  LeftFiles& left_;
  ManifestReader pushed_;
  UniqueFd work_fd_;
};

}  // namespace

absl::Status CheckUnused(const JobPaths& job, const std::string& job_id) {
  const std::vector<ProcessId> alive = MarkedProcesses(job_id);
  if (!alive.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("process ", alive.front().pid, " is still at work in its directory"));
  }
  // Only this file shows bind mounts of the same file system.
  const absl::StatusOr<std::string> mounts = ReadFileToString("/proc/self/mounts");
  if (!mounts.ok()) return absl::OkStatus();
  for (const absl::string_view line : absl::StrSplit(*mounts, '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
    if (fields.size() > 1 && IsBelow(fields[1], job.dir)) {
      return absl::FailedPreconditionError(absl::StrCat("something is mounted at ", fields[1]));
    }
  }
  return absl::OkStatus();
}

absl::Status MeasureJob(const JobPaths& job, RemoveJobReply& reply) {
  ASSIGN_OR_RETURN(const struct stat root, Look(job.dir));
  int64_t freed = int64_t{root.st_blocks} * kBlockBytes;
  int64_t shared = 0;
  struct Linked {
    int64_t names = 0;
    int64_t seen = 0;
    int64_t bytes = 0;
  };
  std::map<uint64_t, Linked> linked;
  RETURN_IF_ERROR(ForEachBelow(
      job.dir, "", [&](const std::string& path, const struct stat& info) -> absl::StatusOr<bool> {
        if (info.st_dev != root.st_dev) {
          return absl::FailedPreconditionError(
              absl::StrCat("something is mounted at ", JoinPath(job.dir, path)));
        }
        const int64_t bytes = int64_t{info.st_blocks} * kBlockBytes;
        if (S_ISDIR(info.st_mode) || info.st_nlink < 2) {
          freed += bytes;
        } else {
          Linked& file = linked[info.st_ino];
          file = {static_cast<int64_t>(info.st_nlink), file.seen + 1, bytes};
        }
        return S_ISDIR(info.st_mode);
      }));
  for (const auto& [inode, file] : linked) (file.seen >= file.names ? freed : shared) += file.bytes;
  reply.set_freed_bytes(freed);
  reply.set_shared_bytes(shared);
  return absl::OkStatus();
}

absl::Status ListLeft(const JobPaths& job, const std::vector<std::string>& patterns,
                      RemoveJobReply& reply) {
  ASSIGN_OR_RETURN(StoredSpec stored, ReadStoredSpec(job));
  ASSIGN_OR_RETURN(const struct stat accepted, Look(job.spec));
  LeftFiles left(reply);
  RETURN_IF_ERROR(
      WorkListing(job, std::move(stored), FileIdentity::Of(accepted).ctime_ns, patterns, left)
          .Run());
  return ForEachBesideCheckpoints(job, [&](const std::string& path, const struct stat& info) {
    left.Add(path, info);
    return true;
  });
}

}  // namespace gpuctl
