// The job's direct child: it waits at a pipe until its start is recorded, then executes the job.
#ifndef GPUCTL_AGENT_SHIM_CHILD_H_
#define GPUCTL_AGENT_SHIM_CHILD_H_

#include <sys/resource.h>
#include <sys/types.h>

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
};

class Child {
 public:
  // Forks. The child waits until Release. It dies if the parent dies, also after Release.
  static absl::StatusOr<Child> Hold(const ChildOptions& options);

  pid_t pid() const { return pid_; }
  // Returns the non-blocking read end of its stdout and stderr.
  UniqueFd TakeOutput() { return std::move(output_); }
  // Lets the child execute its program. After an error the child exits without executing it.
  absl::Status Release();
  // Lets the child exit without executing anything. The caller reaps it.
  void Abandon() { hold_.reset(); }
  // Returns "exec NAME: cause" when the program could not be executed, else "". Call it once, after
  // the child's end.
  std::string TakeExecError();

 private:
  Child() = default;
  pid_t pid_ = -1;
  std::string program_;
  UniqueFd output_;
  UniqueFd hold_;
  UniqueFd exec_error_;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SHIM_CHILD_H_
