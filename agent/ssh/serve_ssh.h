// `gpuctl-agent serve-ssh`: an ssh server for one connection, inside a Slurm allocation. The node's
// own sshd program serves it, as the allocation's user, on stdin and stdout of a step: there is no
// port. It ends with the connection, and with the step all that was started over it.
#ifndef GPUCTL_AGENT_SSH_SERVE_SSH_H_
#define GPUCTL_AGENT_SSH_SERVE_SSH_H_

#include <string>
#include <vector>

namespace gpuctl {

// Begins the first line of stdin: the sizes of what follows it follow the word, in bytes. First the
// server's private host key, then the public key that may log in, as a line of authorized_keys(5)
// without options. Then the client's bytes begin.
inline constexpr char kServeSshWord[] = "GPUCTL-SERVE-SSH";
// The exit code on a node that has no sshd.
inline constexpr int kExitNoSshd = 73;

// Returns the options of authorized_keys(5) by which a session has what a step of the allocation
// has: its GPUs and Slurm's variables. `environment` has entries "NAME=value". An entry that the
// file cannot hold is left out, and the last ones when they are too long for a line. "" for none.
std::string SessionOptions(const std::vector<std::string>& environment);

// Serves the connection, and counts as a contact meanwhile. Returns sshd's exit code, or 1 or
// kExitNoSshd after saying why on stderr.
int RunServeSsh(const std::string& root);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SSH_SERVE_SSH_H_
