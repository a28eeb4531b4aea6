// The address of a node, the keys for it, how its host key is known, and its root directory.
#ifndef GPUCTL_CLIENT_BASE_NODE_TARGET_H_
#define GPUCTL_CLIENT_BASE_NODE_TARGET_H_

#include <string>
#include <vector>

namespace gpuctl {

// What ssh's configuration says about host keys. It counts at the first contact; afterwards the key
// is pinned.
struct HostKeyRules {
  std::vector<std::string> known_hosts;  // files of UserKnownHostsFile and GlobalKnownHostsFile
  std::string alias;                     // HostKeyAlias; "" for the host itself
  bool strict = false;                   // StrictHostKeyChecking yes: unknown hosts are refused
};

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
  HostKeyRules host_key;
  // Fingerprint of the host key that gpuctl gave to a rented machine: no other is accepted, also at
  // the first contact. "" where the machine made its own.
  std::string given_host_key;
  // True when only `identity_files` are offered, and no key of the SSH agent.
  bool identities_only = false;
  // The node's root directory; "" means ~/.gpuctl there.
  std::string root;
  // The number of the allocation that is the node; the address is then that of its login node, and
  // every command is a step (allocation_step.h). "" for a machine of its own.
  std::string allocation;
  // Which of its nodes; 0 is the first.
  int allocation_node = 0;
  // A word of the login node's shell: a directory that nodes may share. What was kept of jobs is
  // read there, content is sent there, nothing runs; programs go to `root`. "" for a live node.
  std::string archive;
  // With `archive`: the allocation is in the scheduler's queue, and its jobs will begin or go on.
  bool in_queue = false;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_NODE_TARGET_H_
