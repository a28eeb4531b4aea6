// The node's end of a push: `gpuctl-agent receive --root R` runs over ssh, with the frames of
// common/transfer/push.h on its stdin and stdout.
#ifndef GPUCTL_AGENT_TREES_RECEIVE_H_
#define GPUCTL_AGENT_TREES_RECEIVE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/trees/silent_push.h"

namespace gpuctl {

// Serves one push: stores the tree under the root, or says that it is there. A tree appears under
// its digest only when all of it is verified and on stable storage. If the process is killed, a
// staging directory remains, which the next call removes. Errors were sent to the peer where
// possible. UNAVAILABLE when nothing came for `silence` and another push needs the staging
// directory of this one. Does not close the descriptors; sets SIGPIPE to be ignored.
absl::Status ReceivePush(const std::string& root, int in_fd, int out_fd,
                         absl::Duration silence = kPeerSilence);

// Runs the subcommand: ReceivePush, with its error on stderr. Returns the process's exit code.
int RunReceive(const std::string& root, int in_fd = 0, int out_fd = 1);

// Removes the remains of killed pushes under the root. Called at the server's start.
absl::Status RemoveAbandonedPushes(const std::string& root);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_TREES_RECEIVE_H_
