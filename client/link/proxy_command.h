// The user's ProxyCommand: a command whose stdin and stdout lead to an ssh server.
#ifndef GPUCTL_CLIENT_LINK_PROXY_COMMAND_H_
#define GPUCTL_CLIENT_LINK_PROXY_COMMAND_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// What such a command says on its stderr: why it fails, or what the user has to do.
class ProxyWords {
 public:
  virtual ~ProxyWords() = default;
  // Returns the last line that is not empty; "" when there was none. Waits a moment for the command
  // to end, since its last line says why.
  virtual std::string LastLine() = 0;
};

struct ProxyConnection {
  UniqueFd socket;  // blocking, to the command's stdin and stdout
  std::shared_ptr<ProxyWords> words;
};

// Starts `command` with the shell. It ends by itself when the socket is closed. `on_line` is called
// on a thread of its own with each line of its stderr, which is not made safe, possibly until this
// process ends: so it must hold what it uses. It may be null.
absl::StatusOr<ProxyConnection> StartProxyCommand(
    const std::string& command, std::function<void(absl::string_view line)> on_line);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LINK_PROXY_COMMAND_H_
