// `gpuctl-agent bridge`: connects stdin and stdout of an ssh exec channel to the agent's Unix
// socket.
#ifndef GPUCTL_AGENT_BRIDGE_H_
#define GPUCTL_AGENT_BRIDGE_H_

#include <string>

namespace gpuctl {

struct BridgeOptions {
  std::string root;
  std::string bundle_dir;
  // True: does nothing after the magic line until the first byte comes, and so is no contact until
  // then. Errors of the server then end the connection only.
  bool wait = false;
};

// Makes sure that a guard runs and that a newer bundle takes over, and connects to the server.
// Writes one magic line ("
// GPUCTL-BRIDGE 1 <version> <node id> <boot id>
// "; output of a shell's start-up files comes before it), then copies both ways until either side
// ends. Without a server it writes a line of common/transfer/fault_line.h instead of the magic
// line, if the failure is of a kind that the client decides by. Returns the exit code.
int RunBridge(const BridgeOptions& options);

// Copies stdin to the socket, and what comes from there to stdout, until either side ends. The
// descriptors do not block afterwards.
void CopyStdio(int socket_fd);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BRIDGE_H_
