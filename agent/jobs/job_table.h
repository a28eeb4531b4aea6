// Jobs as their directories tell them: accepting, starting, stopping, and tidying up after shims
// that were lost. Holds no state that is not on disk.
#ifndef GPUCTL_AGENT_JOBS_JOB_TABLE_H_
#define GPUCTL_AGENT_JOBS_JOB_TABLE_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agent/jobs/shim_launcher.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/job/job_layout.h"
#include "common/job/lifecycle.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// The state of the job in `paths`, derived from spec.json, the shim's lock and the last lifecycle
// line, with these three in `why`. NOT_FOUND when there is no spec.json: such a directory was never
// accepted.
absl::StatusOr<gpuctl::v1::Job> DeriveJob(const JobPaths& paths);

// The lifecycle on disk; empty when there is no file yet.
absl::StatusOr<Lifecycle> ReadLifecycle(const JobPaths& paths);

// The status a failed call carries to the client, with an ErrorDetail as payload.
absl::Status DetailedError(absl::StatusCode code, const std::string& message,
                           gpuctl::v1::ErrorDetail::Kind kind, const std::string& node_id);

// Thread-safe. One per node root (the server's lock sees to that).
class JobTable {
 public:
  // All must outlive the table.
  JobTable(RootPaths paths, std::string node_id, ShimLauncher& launcher, Clock& clock);

  // See the service's StartJob. Errors carry an ErrorDetail where the client must tell them apart.
  absl::StatusOr<gpuctl::v1::Job> Start(const gpuctl::v1::StartJobRequest& request);

  // See the service's StopJob.
  absl::StatusOr<gpuctl::v1::Job> Stop(absl::string_view job_id, absl::string_view reason);

  // See the service's RemoveJob.
  absl::StatusOr<gpuctl::v1::RemoveJobReply> Remove(const gpuctl::v1::RemoveJobRequest& request);

  std::vector<gpuctl::v1::Job> List();

  // Brings every job to where its files say it should be: launches pending ones that need no
  // secrets and retries that are due, writes `lost` for shims that died, removes directories that
  // were never accepted. Called at start and every second; jobs that are over are not looked at
  // again.
  void Tend();

 private:
  absl::StatusOr<gpuctl::v1::Job> StartLocked(const gpuctl::v1::StartJobRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Accept(const gpuctl::v1::StartJobRequest& request);
  absl::Status CheckContent(const gpuctl::v1::JobSpec& spec);
  absl::Status MakeWork(const JobPaths& job, const gpuctl::v1::JobSpec& spec);
  absl::Status ContentMissing(absl::string_view what);
  absl::Status CheckIdentity(const gpuctl::v1::StartJobRequest& request);
  // Launches the attempt that is due, if one is.
  absl::Status LaunchIfDue(const JobPaths& job, const StoredSpec& stored, const Secrets& secrets)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsDue(const std::string& job_id, const LifecycleEvent& retry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Puts the tombstone of a job that is over in the place of its spec: from then on it is gone, and
  // what is left of it is rubbish.
  absl::Status Bury(const JobPaths& job, const std::string& job_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Tombstone(absl::string_view job_id) const;
  void TendJob(const std::string& job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteLost(const JobPaths& job, const StoredSpec& stored)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RootPaths paths_;
  const std::string node_id_;
  ShimLauncher& launcher_;
  Clock& clock_;
  Mutex mutex_;
  // A cache only: jobs that are over stay so.
  std::set<std::string> over_ ABSL_GUARDED_BY(mutex_);
  // Buried ones whose directories a thread is removing, or could not remove.
  std::set<std::string> removing_ ABSL_GUARDED_BY(mutex_);
  // When a job was last launched by Tend, so that a shim that cannot start is not retried in a
  // loop.
  std::map<std::string, absl::Duration> launched_at_ ABSL_GUARDED_BY(mutex_);
  // Since boot: when a job's wait for its retry was first seen.
  std::map<std::string, absl::Duration> retry_seen_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_JOBS_JOB_TABLE_H_
