// Starting a shim, the process that owns a job.
#ifndef GPUCTL_AGENT_JOBS_SHIM_LAUNCHER_H_
#define GPUCTL_AGENT_JOBS_SHIM_LAUNCHER_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/job/job_layout.h"

#include <vector>

namespace gpuctl {

using Secrets = std::map<std::string, std::string>;

class ShimLauncher {
 public:
  virtual ~ShimLauncher() = default;
  // Starts a shim for attempt `attempt` of the job in `job` and gives it the secrets. Returns when
  // the process exists, perhaps before the job runs. An extra shim does no harm: it checks its lock
  // and lifecycle and exits.
  virtual absl::Status Launch(const JobPaths& job, int attempt, const Secrets& secrets) = 0;
  // Reaps shims that have ended. Call it from time to time.
  virtual void Reap() = 0;
  // True when a shim that was launched for the job had not ended at the last Reap. On a busy node
  // it may need long until it holds its lock.
  virtual bool IsStarting(const JobPaths& job) = 0;
  // False where no job can be alive, as in what is kept of an allocation that is over: a job of
  // which no end is written down ended all the same.
  virtual bool JobsMayLive() const { return true; }
  // Starts the keeper of a gang's member (agent/gang/keeper.h) and gives it its ticket.
  virtual absl::Status LaunchKeeper(const JobPaths& job, const std::string& ticket) {
    (void)job, (void)ticket;
    return absl::UnimplementedError("no keeper here");
  }
  // True while a keeper that was launched for the job had not ended at the last Reap.
  virtual bool IsKept(const JobPaths& job) {
    (void)job;
    return false;
  }
};

// Spawns `shim_path` in a session of its own, with its stderr in the job's directory. Thread-safe.
class ProcessShimLauncher : public ShimLauncher {
 public:
  explicit ProcessShimLauncher(std::string shim_path) : shim_path_(std::move(shim_path)) {}
  absl::Status Launch(const JobPaths& job, int attempt, const Secrets& secrets) override;
  void Reap() override;
  bool IsStarting(const JobPaths& job) override;
  absl::Status LaunchKeeper(const JobPaths& job, const std::string& ticket) override;
  bool IsKept(const JobPaths& job) override;

 private:
  // Starts a program in a session of its own and notes it as `name`; `input` goes to its stdin.
  absl::Status Start(std::vector<std::string> argv, const std::string& stderr_path,
                     const std::string& name, std::string input);
  bool Lives(const std::string& name);

  const std::string shim_path_;
  Mutex mutex_;
  std::vector<std::pair<pid_t, std::string>> children_
      ABSL_GUARDED_BY(mutex_);  // a shim is noted by its job's directory, a keeper by its lock
};

// Returns the bytes that a shim reads from its stdin: length-prefixed names and values, an end mark
// and a commit byte. Without the commit byte the shim starts nothing.
std::string EncodeSecrets(const Secrets& secrets);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_JOBS_SHIM_LAUNCHER_H_
