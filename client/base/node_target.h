// The address of a node, the keys for it, and its root directory.
#ifndef GPUCTL_CLIENT_BASE_NODE_TARGET_H_
#define GPUCTL_CLIENT_BASE_NODE_TARGET_H_

#include <string>
#include <vector>

namespace gpuctl {

struct NodeTarget {
  // "local": gpuctl's own sshd on a socketpair, without a port, with keys made for it. "ssh": host
  // and port.
  std::string provider;
  // Stable name of the node: "local", or "user@host:port". Host keys are pinned under it.
  std::string name;
  std::string host;
  int port = 22;
  std::string user;
  // Private key files to offer, in order. Empty: the SSH agent and the usual files of ~/.ssh.
  std::vector<std::string> identity_files;
  // Command whose stdin and stdout reach the server (ProxyCommand, "ssh -W" for ProxyJump), or "".
  std::string proxy_command;
  // The node's root directory; "" means ~/.gpuctl there.
  std::string root;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_NODE_TARGET_H_
