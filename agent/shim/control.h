// The control FIFO: a small protocol that never changes.
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
    kStopNow,  // "stop now": no grace; recorded as a stop by the user
    kSignal,   // "signal N"
  };
  Type type = Type::kStop;
  std::string reason;
  int signal = 0;
};

// Reads commands from complete lines and ignores anything else.
class ControlReader {
 public:
  // `fifo` must be non-blocking.
  explicit ControlReader(UniqueFd fifo) : fifo_(std::move(fifo)) {}
  int fd() const { return fifo_.get(); }
  // Returns all commands that can be read now.
  std::vector<ControlCommand> Read();

 private:
  UniqueFd fifo_;
  std::string partial_;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SHIM_CONTROL_H_
