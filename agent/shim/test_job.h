// A job directory and its shims, for tests.
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

// Returns the pairs in the form that a shim reads from its stdin.
std::string EncodeForShim(const std::map<std::string, std::string>& secrets, bool committed = true);

// Returns the path of a binary under test.
std::string BinPath(absl::string_view name);
std::string FakeJobPath();

// Waits until `done` is true. Returns false after a long time; the test then fails.
bool WaitUntil(const std::function<bool()>& done);

// A job directory with shims. Not thread-safe. Its destructor ends every process that it knows.
class TestJob {
 public:
  // `parent` gets the job's directory; it may be a small file system. By default a new directory.
  explicit TestJob(std::vector<std::string> argv, std::string parent = "");
  ~TestJob();

  gpuctl::v1::JobSpec spec;  // change it before the first Start
  const JobPaths& paths() const { return paths_; }

  // Starts a shim, under `wrapper` (strace …) if there is one. Returns its pid (the wrapper's).
  pid_t Start(int attempt = 1, const std::string& secrets = EncodeForShim({}),
              const std::vector<std::string>& wrapper = {});
  // Waits for a shim. Returns its exit code, or 128 + signal.
  int Wait(pid_t shim);
  // Starts a shim and waits for it.
  int Run(int attempt = 1) { return Wait(Start(attempt)); }
  // Returns the argv of "bash -c SCRIPT".
  static std::vector<std::string> Bash(const std::string& script);

  void Control(absl::string_view line);
  std::string Output() const;
  std::string MetricsText() const;
  std::string ShimStderr() const;
  Lifecycle ReadLifecycle() const;
  std::vector<LifecycleEvent> Events(LifecycleEvent::Type type) const;
  // Returns the only `exited` line. Without exactly one, fails an expectation and returns an empty
  // event.
  LifecycleEvent Exited() const;
  // Waits until the output contains `text`.
  bool WaitForOutput(absl::string_view text);
  bool WaitForEvent(LifecycleEvent::Type type);
  // True while a process has this job's id in its environment.
  bool HasProcesses() const;
  // Makes a FIFO for fake_job's --barrier.
  std::string MakeFifo(absl::string_view name);
  // Waits until a process has reached the barrier. The process goes on when the result is
  // destroyed.
  UniqueFd Arrive(const std::string& fifo);

 private:
  TempDir temp_;
  JobPaths paths_;
  std::vector<pid_t> shims_;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SHIM_TEST_JOB_H_
