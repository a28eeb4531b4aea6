// The job's direct child: it waits at a pipe until its start is recorded, then executes the job.
#ifndef GPUCTL_AGENT_SHIM_CHILD_H_
#define GPUCTL_AGENT_SHIM_CHILD_H_

#include <sys/resource.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/base/environment.h"
#include "agent/shim/secret_block.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

struct ChildOptions {
  std::vector<std::string> argv;  // argv[0] is searched in the PATH of `environment`
  Environment environment;
  const SecretBlock* secrets = nullptr;  // may replace entries of `environment` except GPUCTL_*
  std::string work_dir;
  int lock_fd = -1;     // closed first: the job must not hold the lock
  rlimit core_limit{};  // for the job
  int oom_score = 0;
  // Runs in the child, in work_dir, after Release and before the job is executed. Returns the
  // environment of the job, or ends the process. It writes lifecycle lines to `news`, and waits for
  // Continue at `go`, one byte.
  std::function<Environment(int news, int go)> prepare;
  // argv begins with a launcher (agent/ranks/launcher.h), which gets a descriptor for its word, as
  // a decimal number in place of argv[launcher_fd_at]. 0: it is no launcher.
  size_t launcher_fd_at = 0;
};

// Executes argv[0] in this process, as the job's child does. Returns errno when it cannot.
int ExecuteProgram(const std::vector<std::string>& argv, const Environment& environment,
                   const SecretBlock* secrets);

// What the child told before its end.
struct ChildWord {
  std::string exec_error;  // "exec NAME: cause" when the program could not be executed
  std::string detail;      // of the launcher of several processes: which one ended first, and how
};

class Child {
 public:
  // Forks. The child waits until Release. It dies if the parent dies, also after Release.
  static absl::StatusOr<Child> Hold(ChildOptions options);

  pid_t pid() const { return pid_; }
  // Returns the non-blocking read end of its stdout and stderr.
  UniqueFd TakeOutput() { return std::move(output_); }
  // Returns the non-blocking read end of what `prepare` writes; invalid without `prepare`.
  UniqueFd TakeNews() { return std::move(news_); }
  // Lets the child execute its program, or run `prepare`. After an error the child exits without
  // executing anything.
  absl::Status Release();
  // Lets the child go on behind its `prepare`.
  void Continue();
  // Lets the child exit without executing anything. The caller reaps it.
  void Abandon() { hold_.reset(); }
  // Call it once, after the child's end.
  ChildWord TakeLastWord();

 private:
  Child() = default;
  pid_t pid_ = -1;
  bool prepares_ = false;
  UniqueFd output_;
  UniqueFd news_;
  UniqueFd hold_;
  UniqueFd word_;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SHIM_CHILD_H_
