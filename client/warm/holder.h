// The process that keeps a connection to one node open for the commands that follow.
#ifndef GPUCTL_CLIENT_WARM_HOLDER_H_
#define GPUCTL_CLIENT_WARM_HOLDER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/base/node_target.h"

namespace gpuctl {

// The hidden verb of the holder's process; its request comes on stdin.
inline constexpr char kHolderVerb[] = "hold-link";

struct HolderRequest {
  NodeTarget target;  // not a local one
  std::string state_dir;
  // The line of a bridge that waits, to start in advance.
  std::string bridge;
  absl::Duration idle = absl::Minutes(10);
};
std::string HolderRequestJson(const HolderRequest& request);
absl::StatusOr<HolderRequest> ParseHolderRequest(absl::string_view text);

// Starts a holder, unless there is one, and does not wait for it. It has a session of its own, no
// terminal, and of the environment only what reaching the node may need.
absl::Status StartHolder(const HolderRequest& request);

// Connects, and serves commands until none came for `idle`, the connection breaks, this program's
// file is replaced, the socket is removed or replaced, or SIGTERM comes. Returns at once when
// another holder for the node lives, or too many for others.
absl::Status RunHolder(const HolderRequest& request);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_WARM_HOLDER_H_
