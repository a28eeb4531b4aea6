#include "agent/jobs/job_accept.h"

#include <fcntl.h>

#include <cerrno>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/jobs/job_state.h"
#include "agent/store/given_data.h"
#include "agent/store/tree_store.h"
#include "agent/trees/work_merge.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/dir_walk.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/process/process.h"
#include "common/transfer/error_detail.h"

namespace gpuctl {
namespace {

absl::Status ContentMissing(const std::string& what, const std::string& node_id) {
  return DetailedError(absl::StatusCode::kFailedPrecondition, what,
                       gpuctl::v1::ErrorDetail::KIND_CONTENT_MISSING, node_id);
}

absl::Status CheckContent(const RootPaths& root, const std::string& node_id,
                          const gpuctl::v1::JobSpec& spec) {
  std::vector<std::string> digests;
  if (!spec.manifest_digest().empty()) digests.push_back(spec.manifest_digest());
  for (const gpuctl::v1::DataTree& data : spec.data()) {
    if (!IsSafeRelativePath(data.path()) || !IsManifestDigest(data.manifest_digest())) {
      return absl::InvalidArgumentError(absl::StrCat("start job: bad data tree ", data.path()));
    }
    digests.push_back(data.manifest_digest());
  }
  for (const std::string& digest : digests) {
    if (!HasStoredTree(root.trees, digest)) {
      return ContentMissing(absl::StrCat("content ", digest, " is not on the node"), node_id);
    }
  }
  return absl::OkStatus();
}

// Returns the inodes of the stored files that other jobs have, as far as these jobs may still run.
absl::StatusOr<std::set<uint64_t>> FilesOfLiveJobs(const RootPaths& root) {
  std::set<uint64_t> inodes;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(root.jobs));
  for (const std::string& name : names) {
    const JobPaths job = root.Job(name);
    if (!PathExists(job.spec) && !PathExists(LentFilesPath(job))) continue;
    if (!absl::EndsWith(name, kPreparedEnding)) {
      const absl::StatusOr<bool> locked = IsLocked(job.lock);
      const absl::StatusOr<Lifecycle> lifecycle = ReadLifecycle(job);
      // What cannot be read may run.
      if (locked.ok() && !*locked && lifecycle.ok() && IsOver(*lifecycle)) continue;
    }
    RETURN_IF_ERROR(AddLentFiles(job, inodes));
  }
  return inodes;
}

// Makes work/, which appears complete, by a rename.
absl::Status MakeWork(const RootPaths& root, const JobPaths& job, const gpuctl::v1::JobSpec& spec,
                      const DataOptions& options) {
  const std::string partial = absl::StrCat(job.work, ".tmp");
  if (spec.manifest_digest().empty()) {
    RETURN_IF_ERROR(MakeDirectories(partial, 0755));
  } else {
    RETURN_IF_ERROR(
        CopyStoredTree(root.trees, spec.manifest_digest(), partial, WorkManifestPath(job)));
  }
  const UniqueFd partial_fd(file_ops::Open(partial, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (!partial_fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", partial));
  DirWalk walk(partial_fd.get(), 0755);
  GiveOptions give;
  give.may_clone = options.may_clone;
  give.modes_bind = options.modes_bind;
  give.lent = [&root] { return FilesOfLiveJobs(root); };
  give.note = LentFilesPath(job);
  if (!spec.data().empty()) RETURN_IF_ERROR(WriteFileAtomic(give.note, ""));
  for (const gpuctl::v1::DataTree& data : spec.data()) {
    // This does not follow a symlink in the work directory.
    RETURN_IF_ERROR(walk.OpenOrMake(ParentPath(data.path())).status());
    RETURN_IF_ERROR(GiveStoredTree(root.trees, data.manifest_digest(),
                                   JoinPath(partial, data.path()),
                                   DataManifestPath(job, data.manifest_digest()), give));
  }
  if (file_ops::Rename(partial, job.work) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename to ", job.work));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PrepareJob(const RootPaths& root, const std::string& node_id, const StoredSpec& stored,
                        const DataOptions& options) {
  RETURN_IF_ERROR(CheckContent(root, node_id, stored.spec));
  const JobPaths job = root.Job(absl::StrCat(stored.spec.job_id(), kPreparedEnding));
  RETURN_IF_ERROR(RemoveTree(job.dir));
  RETURN_IF_ERROR(MakeDirectories(job.dir));
  const absl::Status made = MakeWork(root, job, stored.spec, options);
  if (absl::IsNotFound(made) || absl::IsDataLoss(made)) {
    // The tree was swept meanwhile or is damaged. It must be pushed again.
    (void)RemoveTree(job.dir);
    return ContentMissing(std::string(made.message()), node_id);
  }
  RETURN_IF_ERROR(made);
  RETURN_IF_ERROR(MakeDirectories(job.checkpoints));
  return WriteFileAtomic(job.spec, FormatStoredSpec(stored));
}

absl::Status CommitJob(const RootPaths& root, const std::string& job_id) {
  const JobPaths job = root.Job(job_id);
  const JobPaths prepared = root.Job(absl::StrCat(job_id, kPreparedEnding));
  if (PathExists(job.lock) || PathExists(job.lifecycle)) {
    return absl::FailedPreconditionError(
        absl::StrCat(job.dir, " is there without its spec.json; move it away"));
  }
  // The rest of an acceptance by a server that prepared jobs under their own names.
  RETURN_IF_ERROR(RemoveTree(job.dir));
  if (file_ops::Rename(prepared.dir, job.dir) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename to ", job.dir));
  }
  return SyncDirectory(root.jobs);
}

}  // namespace gpuctl
