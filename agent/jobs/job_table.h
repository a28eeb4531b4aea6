// The jobs of a node, derived from their directories: accepts, starts and stops them, and cleans up
// after lost shims. All state is on disk.
#ifndef GPUCTL_AGENT_JOBS_JOB_TABLE_H_
#define GPUCTL_AGENT_JOBS_JOB_TABLE_H_

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agent/jobs/job_state.h"
#include "agent/jobs/shim_launcher.h"
#include "agent/slots/gpu_claim.h"
#include "agent/slots/queue_plan.h"
#include "agent/slots/visible_gpus.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/job/job_layout.h"
#include "common/job/lifecycle.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// The jobs of one node root. The server's lock ensures that a root has one table. Thread-safe.
class JobTable {
 public:
  using ListGpus = std::function<NodeGpus()>;

  // All arguments must outlive the table. Without `gpus` the node has no GPU.
  JobTable(RootPaths paths, std::string node_id, ShimLauncher& launcher, Clock& clock,
           ListGpus gpus = nullptr);

  // Starts a job; see the service's StartJob. Errors have an ErrorDetail where the client must
  // distinguish them.
  absl::StatusOr<gpuctl::v1::Job> Start(const gpuctl::v1::StartJobRequest& request);

  // Stops a job; see the service's StopJob.
  absl::StatusOr<gpuctl::v1::Job> Stop(const gpuctl::v1::StopJobRequest& request);

  // Sets a job's running time; see the service's SetJobTime.
  absl::StatusOr<gpuctl::v1::Job> SetTime(const gpuctl::v1::SetJobTimeRequest& request);

  // Removes a job; see the service's RemoveJob.
  absl::StatusOr<gpuctl::v1::RemoveJobReply> Remove(const gpuctl::v1::RemoveJobRequest& request);

  // Returns the jobs in the order of their ids.
  std::vector<gpuctl::v1::Job> List();
  // Returns the jobs after `after_job_id`, at most `limit` of them.
  std::vector<gpuctl::v1::Job> ListAfter(const std::string& after_job_id, size_t limit);
  // Returns the jobs that are not known to be over, and those of `also`. Costs nothing for others.
  std::vector<gpuctl::v1::Job> ListLive(const std::vector<std::string>& also);
  // Returns all jobs, those that are not over first, as far as they fit into `bytes`.
  std::vector<gpuctl::v1::Job> ListWithin(size_t bytes);

  // Returns how many of the node's GPUs jobs have, and how many jobs wait for some; nothing before
  // the driver has listed them.
  std::optional<gpuctl::v1::GpuSlots> Slots();
  // Adds to a queued job its place, as of the last Tend.
  void AddPlace(gpuctl::v1::Job& job);

  // Gives the secrets of waiting jobs away, by job id, for the next server: call it last.
  std::map<std::string, Secrets> GiveSecrets();
  // Takes those that the last server had. Call it before Tend.
  void TakeSecrets(std::map<std::string, Secrets> secrets);

  // True while a thread copies the content of a job that will be accepted.
  bool IsAccepting(const std::string& job_id);

  // Brings every job to the state that its files require: launches pending jobs that need no
  // secrets and retries that are due, gives free GPUs to jobs that wait for them, ends those whose
  // shim cannot start, writes `lost` for dead shims, removes what was prepared for jobs that were
  // never accepted. Call it at start and every second. It does not look again at jobs that are
  // over.
  void Tend();

 private:
  // The launches of a job's newest attempt.
  struct Launches {
    int attempt = 0;
    int count = 0;
    absl::Duration last;  // since boot
  };

  // Copies the job's content and makes it a job, unless it is one.
  absl::Status Accept(const gpuctl::v1::StartJobRequest& request);
  absl::StatusOr<gpuctl::v1::Job> Launch(const gpuctl::v1::StartJobRequest& request);
  absl::Status Reserve(const gpuctl::v1::StartJobRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(const std::string& job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<gpuctl::v1::Job> StopNow(const JobPaths& job, const std::string& job_id,
                                          absl::string_view reason);
  absl::StatusOr<gpuctl::v1::Job> Known(const std::string& name);
  absl::Status Clean(const std::string& name);
  // Refuses what is meant for another node.
  absl::Status CheckNode(const std::string& expected);
  absl::Status CheckIdentity(const gpuctl::v1::StartJobRequest& request);
  // Launches the next attempt if it is due.
  absl::Status LaunchIfDue(const JobPaths& job, const StoredSpec& stored, const Secrets& secrets)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LaunchAttempt(const JobPaths& job, const std::string& job_id, int attempt,
                             const Secrets& secrets) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsDue(const std::string& job_id, const LifecycleEvent& retry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Renames the spec of a job that is over to its tombstone. From then on the job is gone; its
  // other files can be removed at any time.
  absl::Status Bury(const JobPaths& job, const std::string& job_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Tombstone(absl::string_view job_id) const;
  absl::Status TendJob(const std::string& job_id);
  absl::Status TendWaiting(const JobPaths& job, const StoredSpec& stored, int attempt);
  absl::Status WriteLost(const JobPaths& job, const StoredSpec& stored);

  // job_gang.cc: the jobs that begin and end with those of other nodes.
  // Gives a job that has not begun its keeper.
  absl::Status SeatMember(const JobPaths& job, const gpuctl::v1::StartJobRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits until the keeper of rank 0 listens, and adds where.
  absl::Status AddGangPlace(const JobPaths& job, gpuctl::v1::Job& answer);
  // Ends a member whose keeper has died. Returns true when it had to.
  absl::StatusOr<bool> EndUnkept(const JobPaths& job, const gpuctl::v1::Job& state);

  // job_queue.cc: the jobs that wait for GPUs.
  struct Survey;
  // Refuses a job that the node can never start. Waits for a driver that is slow to list its GPUs.
  absl::Status CheckGpus(const gpuctl::v1::JobSpec& spec);
  // Looks at what live jobs have and wait for.
  Survey SurveyGpus() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddToSurvey(const std::string& name, Survey& survey) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddWaiting(const std::string& job_id, const GpuWish& wish, const GpuClaim& claim,
                  Survey& survey) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the plan for the survey's jobs, and remembers the places of those that wait.
  QueuePlan Plan(Survey& survey) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives the job its GPUs, or a line in its lifecycle that says that it waits. Returns true when
  // it has them.
  absl::StatusOr<bool> GrantOrQueue(const std::string& job_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteQueued(const std::string& job_id, const Survey& survey)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts the jobs whose turn it is.
  void TendQueue();
  // Takes the GPUs back from an attempt whose secrets an earlier server had, and did not pass on.
  absl::Status RequeueWithoutSecrets(const JobPaths& job, int attempt)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetSecrets(const std::string& job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RootPaths paths_;
  const std::string node_id_;
  ShimLauncher& launcher_;
  Clock& clock_;
  Mutex mutex_;
  CondVar changed_;  // busy_ has
  // Jobs that are over. Only a cache, because they stay over. Empty for a buried job whose
  // directory could not be removed.
  std::map<std::string, gpuctl::v1::Job> over_ ABSL_GUARDED_BY(mutex_);
  // Jobs whose directories a thread is making or removing.
  std::set<std::string> busy_ ABSL_GUARDED_BY(mutex_);
  // So that a shim that cannot start is not launched in a loop.
  std::map<std::string, Launches> launches_ ABSL_GUARDED_BY(mutex_);
  // The time since boot before which a lost job's processes are not killed again.
  std::map<std::string, absl::Duration> sweep_again_ ABSL_GUARDED_BY(mutex_);
  // The time since boot at which a job's wait for its retry was first seen.
  std::map<std::string, absl::Duration> retry_seen_ ABSL_GUARDED_BY(mutex_);
  // The time since boot at which a gang's member was first seen without its keeper.
  std::map<std::string, absl::Duration> unkept_since_ ABSL_GUARDED_BY(mutex_);
  const ListGpus list_gpus_;
  const absl::Duration started_;  // when this server began, in boot time
  // What the specs of jobs say about GPUs. Only a cache: specs never change.
  std::map<std::string, GpuWish> wishes_ ABSL_GUARDED_BY(mutex_);
  // The time since boot at which a job was first seen to wait for GPUs.
  std::map<std::string, absl::Duration> queue_seen_ ABSL_GUARDED_BY(mutex_);
  // The places of the last plan.
  std::map<std::string, gpuctl::v1::JobQueue> places_ ABSL_GUARDED_BY(mutex_);
  // The secrets of jobs that wait for GPUs; they are nowhere else.
  std::map<std::string, Secrets> secrets_ ABSL_GUARDED_BY(mutex_);
  bool somebody_waits_ = false;  // used by Tend's thread only
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_JOBS_JOB_TABLE_H_
