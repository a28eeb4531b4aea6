// The job's direct child: held at a pipe until its start is on record, then executed.
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
  std::vector<std::string> argv;  // argv[0] is looked up in the PATH of `environment`
  Environment environment;
  const SecretBlock* secrets = nullptr;  // may shadow entries of `environment`, GPUCTL_* aside
  std::string work_dir;
  int lock_fd = -1;     // closed first: the lock must not live on in the job
  rlimit core_limit{};  // what the job's limit is to be
  int oom_score = 0;
};

class Child {
 public:
  // Forks. The child waits until Release and dies if the parent dies before or after that.
  static absl::StatusOr<Child> Hold(const ChildOptions& options);

  pid_t pid() const { return pid_; }
  // The non-blocking read end of its stdout and stderr.
  UniqueFd TakeOutput() { return std::move(output_); }
  // Lets it execute its program. After an error it leaves without.
  absl::Status Release();
  // Lets it leave without having executed anything; the caller reaps it.
  void Abandon() { hold_.reset(); }
  // "exec NAME: cause" when the program could not be executed; empty when it could. Asked once,
  // after the child's end.
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
