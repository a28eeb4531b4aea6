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
};

// Spawns `shim_path` in a session of its own, with its stderr in the job's directory. Thread-safe.
class ProcessShimLauncher : public ShimLauncher {
 public:
  explicit ProcessShimLauncher(std::string shim_path) : shim_path_(std::move(shim_path)) {}
  absl::Status Launch(const JobPaths& job, int attempt, const Secrets& secrets) override;
  void Reap() override;
  bool IsStarting(const JobPaths& job) override;

 private:
  const std::string shim_path_;
  Mutex mutex_;
  std::vector<std::pair<pid_t, std::string>> children_
      ABSL_GUARDED_BY(mutex_);  // and their jobs' directories
};

// Returns the bytes that a shim reads from its stdin: length-prefixed names and values, an end mark
// and a commit byte. Without the commit byte the shim starts nothing.
std::string EncodeSecrets(const Secrets& secrets);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_JOBS_SHIM_LAUNCHER_H_
