#include "agent/restart/staged.h"

#include <unistd.h>

#include <stdio.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/base/node_root.h"
#include "agent/hold/kept_layout.h"
#include "agent/jobs/job_accept.h"
#include "agent/jobs/job_state.h"
#include "agent/restart/restart_kit.h"
#include "agent/store/tree_store.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/job/lifecycle.h"
#include "common/release/release_route.h"
#include "common/release/slurm_job.h"
#include "common/transfer/error_detail.h"

namespace gpuctl {
namespace {

constexpr unsigned kStageWithinS = 60;

using gpuctl::v1::ErrorDetail;

// There as long as jobs of the copy wait for the first start. It gets another name then.
std::string MarkOf(const RootPaths& copy) { return JoinPath(copy.root, kStagedWord); }

RootPaths AgainOf(const RootPaths& copy) {
  return RootPaths(JoinPath(DirName(copy.root), kKeptAgain));
}

// The mark's names when it was taken, by the start or by the client.
constexpr char kByStart[] = "begun";
constexpr char kByClient[] = "back";
std::string TakenMark(const RootPaths& copy, absl::string_view taker) {
  return absl::StrCat(MarkOf(copy), ".", taker);
}

// Renames the mark, which one of several can. NOT_FOUND for the others.
absl::Status TakeMark(const RootPaths& copy, absl::string_view taker) {
  const std::string mark = MarkOf(copy);
  const std::string taken = TakenMark(copy, taker);
  if (rename(mark.c_str(), taken.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("take ", mark));
  }
  return SyncDirectory(copy.root);
}

absl::Status Check(const RootPaths& copy, const std::string& node_id,
                   const gpuctl::v1::StartJobRequest& request) {
  const gpuctl::v1::JobSpec& spec = request.spec();
  if (!IsValidId(spec.job_id())) return absl::InvalidArgumentError("bad job id");
  if (spec.argv().empty()) return absl::InvalidArgumentError("no command");
  if (!request.expected_node_id().empty() && request.expected_node_id() != node_id) {
    return DetailedError(absl::StatusCode::kFailedPrecondition, "another allocation waits here",
                         ErrorDetail::KIND_NODE_CHANGED, node_id);
  }
  if (spec.has_gang() || !spec.secret_names().empty()) {
    return absl::FailedPreconditionError(
        "a run with secrets, or on several machines, cannot begin without gpuctl");
  }
  for (const std::string& other : JobsOfRoot(copy)) {
    if (other == spec.job_id()) continue;
    return absl::FailedPreconditionError("another run waits for the start of this allocation");
  }
  if (StoppedReason(DirName(copy.root), spec.job_id()).has_value()) {
    return DetailedError(absl::StatusCode::kNotFound, "it was stopped here",
                         ErrorDetail::KIND_SWEPT, node_id);
  }
  return absl::OkStatus();
}

// Puts the job into the copy under its own name, all at once.
absl::Status Write(const RootPaths& copy, const StoredSpec& stored, Clock& clock) {
  const std::string& job_id = stored.spec.job_id();
  const JobPaths job = copy.Job(absl::StrCat(job_id, kPreparedEnding));
  RETURN_IF_ERROR(RemoveTree(job.dir));
  RETURN_IF_ERROR(MakeDirectories(job.dir));
  LifecycleEvent queued;
  queued.type = LifecycleEvent::Type::kQueued;
  queued.attempt = 1;
  queued.reason = kSchedulerReason;
  queued.time_ms = absl::ToUnixMillis(clock.Now());
  RETURN_IF_ERROR(WriteFileAtomic(job.lifecycle, FormatLifecycleEvent(queued)));
  RETURN_IF_ERROR(WriteFileAtomic(job.spec, FormatStoredSpec(stored)));
  return CommitJob(copy, job_id);
}

}  // namespace

bool IsStaged(const RootPaths& copy) {
  const std::optional<AllocationStart> start = ParseAllocationStart(BaseName(copy.root));
  return start.has_value() && start->restart == kStaged;
}

absl::StatusOr<std::string> MakeStaged(const std::string& directory, const std::string& job,
                                       const std::string& bundle_dir) {
  RETURN_IF_ERROR(CheckOwnDirectory(directory));
  const absl::StatusOr<std::string> newest = NewestCopy(directory);
  if (newest.ok()) {
    if (IsStaged(RootPaths(*newest))) return newest;
    return absl::FailedPreconditionError("the allocation has begun");
  }
  if (!IsSeenByNodes(directory)) {
    return absl::FailedPreconditionError(
        absl::StrCat("no node has been seen to share ", DirName(directory),
                     " with the login node yet, and it is on no network file system"));
  }
  const RootPaths copy(JoinPath(directory, absl::StrCat(job, "-", kStagedWord)));
  const RootPaths again = AgainOf(copy);
  for (const std::string& folder : {copy.jobs, copy.tombstones, again.bin, again.trees}) {
    RETURN_IF_ERROR(MakeDirectories(folder, 0700));
  }
  RETURN_IF_ERROR(KeepPrograms(bundle_dir, again));
  RETURN_IF_ERROR(NodeId(copy).status());
  return copy.root;
}

absl::StatusOr<gpuctl::v1::Job> AcceptStaged(const RootPaths& copy, const std::string& node_id,
                                             const gpuctl::v1::StartJobRequest& request,
                                             Clock& clock) {
  RETURN_IF_ERROR(Check(copy, node_id, request));
  const std::string& job_id = request.spec().job_id();
  const JobPaths job = copy.Job(job_id);
  if (!PathExists(job.spec)) {
    for (const std::string& digest : TreesOf(request.spec())) {
      if (HasStoredTree(AgainOf(copy).trees, digest)) continue;
      return DetailedError(absl::StatusCode::kFailedPrecondition,
                           absl::StrCat("content ", digest, " is not there"),
                           ErrorDetail::KIND_CONTENT_MISSING, node_id);
    }
    StoredSpec stored;
    stored.spec_digest = request.spec_digest();
    stored.spec = request.spec();
    RETURN_IF_ERROR(Write(copy, stored, clock));
  }
  // Also of one whose mark an earlier call could not write, or has taken back.
  if (!PathExists(MarkOf(copy)) && !PathExists(TakenMark(copy, kByStart))) {
    RETURN_IF_ERROR(WriteFileAtomic(MarkOf(copy), ""));
  }
  ASSIGN_OR_RETURN(const StoredSpec stored, ReadStoredSpec(job));
  if (stored.spec_digest != request.spec_digest()) {
    return absl::AlreadyExistsError("the node has this job with another spec");
  }
  return DeriveJob(job, stored);
}

int RunStage(const std::string& directory, const std::string& job, const std::string& bundle_dir) {
  // Where the file system hangs, the client waits for the allocation's start itself.
  alarm(kStageWithinS);
  absl::Status status = absl::InvalidArgumentError("stage: this is no job of Slurm");
  if (ParseSlurmJob(job).has_value()) status = MakeStaged(directory, job, bundle_dir).status();
  printf("%s%s\n", kStageSays, status.ok() ? kStageReady : std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}

absl::Status TakeBackStaged(const RootPaths& copy, const std::string& job_id) {
  RETURN_IF_ERROR(TakeMark(copy, kByClient));
  return RemoveTree(copy.Job(job_id).dir);
}

absl::Status TakeStaged(const RootPaths& copy) { return TakeMark(copy, kByStart); }

}  // namespace gpuctl
