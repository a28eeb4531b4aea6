// The control FIFO: a tiny protocol that never changes.
#ifndef GPUCTL_AGENT_SHIM_CONTROL_H_
#define GPUCTL_AGENT_SHIM_CONTROL_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

struct ControlCommand {
  enum class Type {
    kStop,     // "stop REASON": REASON goes to lifecycle
    kStopNow,  // "stop now": without grace; it is recorded as the user's
    kSignal,   // "signal N"
  };
  Type type = Type::kStop;
  std::string reason;
  int signal = 0;
};

// The commands among complete lines; anything else is ignored.
class ControlReader {
 public:
  // `fifo` is non-blocking.
  explicit ControlReader(UniqueFd fifo) : fifo_(std::move(fifo)) {}
  int fd() const { return fifo_.get(); }
  // Everything that can be read now.
  std::vector<ControlCommand> Read();

 private:
  UniqueFd fifo_;
  std::string partial_;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SHIM_CONTROL_H_
