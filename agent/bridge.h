// `gpuctl-agent bridge`: stdin and stdout of an ssh exec channel <-> the agent's Unix socket.
#ifndef GPUCTL_AGENT_BRIDGE_H_
#define GPUCTL_AGENT_BRIDGE_H_

#include <string>

namespace gpuctl {

struct BridgeOptions {
  std::string root;
  std::string bundle_dir;
};

// Makes sure that a guard runs and that a newer bundle takes over, connects, writes one magic line
// ("\nGPUCTL-BRIDGE 1 <version> <node id> <boot id>\n"; what a shell's start-up files printed lies
// before it), then copies both ways until either side ends. Returns the exit code. Where there is
// no server to connect to, a line of common/transfer/fault_line.h stands in the magic line's place
// if the client decides by the kind of failure.
int RunBridge(const BridgeOptions& options);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BRIDGE_H_
