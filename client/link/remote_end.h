// A command on a node, whoever carries its bytes: a session of its own, or a shared one.
#ifndef GPUCTL_CLIENT_LINK_REMOTE_END_H_
#define GPUCTL_CLIENT_LINK_REMOTE_END_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace gpuctl {

// Functions are safe from any thread.
class RemoteEnd {
 public:
  virtual ~RemoteEnd() = default;
  // Ends it at once, also when the network is dead.
  virtual void Stop() = 0;
  // Returns OK while it lives; afterwards the reason of its end.
  virtual absl::Status status() = 0;
  // Blocks until it has ended. Returns the command's exit code (128+n for a signal), or the reason
  // why there is none.
  virtual absl::StatusOr<int> WaitForExit() = 0;
  // Returns the exit code if the command has ended.
  virtual std::optional<int> exit_code() = 0;
  // Returns the text after the magic on its line, once it came.
  virtual std::optional<std::string> magic_line() = 0;
  // Return the text before the magic, and stderr; at most 64 KiB each.
  virtual std::string preamble() = 0;
  virtual std::string stderr_text() = 0;
  // Returns the time since the last byte from the node.
  virtual absl::Duration Silence() = 0;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LINK_REMOTE_END_H_
