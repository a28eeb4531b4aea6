// One job directory and the shims that run in it, for tests.
#ifndef GPUCTL_AGENT_SHIM_TEST_JOB_H_
#define GPUCTL_AGENT_SHIM_TEST_JOB_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/job/job_layout.h"
#include "common/job/lifecycle.h"
#include "gpuctl/v1/run.pb.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {

// "NAME=value" pairs as a shim reads them from its stdin.
std::string EncodeForShim(const std::map<std::string, std::string>& secrets, bool committed = true);

// The binaries under test.
std::string BinPath(absl::string_view name);
std::string FakeJobPath();

// Waits until `done` holds; false after a generous time, in which case the test fails.
bool WaitUntil(const std::function<bool()>& done);

// Not thread-safe. Every process it knows of is gone when it is destroyed.
class TestJob {
 public:
  // `parent` holds the job's directory: a small file system, say. By default a fresh one.
  explicit TestJob(std::vector<std::string> argv, std::string parent = "");
  ~TestJob();

  gpuctl::v1::JobSpec spec;  // change it before the first Start
  const JobPaths& paths() const { return paths_; }

  // Starts a shim, with `wrapper` (strace …) before it; returns its pid (the wrapper's).
  pid_t Start(int attempt = 1, const std::string& secrets = EncodeForShim({}),
              const std::vector<std::string>& wrapper = {});
  // Waits for a shim: its exit code, or 128 + signal.
  int Wait(pid_t shim);
  // Both.
  int Run(int attempt = 1) { return Wait(Start(attempt)); }
  // "bash -c SCRIPT".
  static std::vector<std::string> Bash(const std::string& script);

  void Control(absl::string_view line);
  std::string Output() const;
  std::string MetricsText() const;
  std::string ShimStderr() const;
  Lifecycle ReadLifecycle() const;
  std::vector<LifecycleEvent> Events(LifecycleEvent::Type type) const;
  // The only `exited` line; a failed expectation and an empty event when there is not one.
  LifecycleEvent Exited() const;
  // Waits until the output contains `text`.
  bool WaitForOutput(absl::string_view text);
  bool WaitForEvent(LifecycleEvent::Type type);
  // True while a process has this job's id in its environment.
  bool HasProcesses() const;
  // A FIFO for fake_job's --barrier.
  std::string MakeFifo(absl::string_view name);
  // Waits until somebody stands at the barrier; the result's destruction lets it go on.
  UniqueFd Arrive(const std::string& fifo);

 private:
  TempDir temp_;
  JobPaths paths_;
  std::vector<pid_t> shims_;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SHIM_TEST_JOB_H_
