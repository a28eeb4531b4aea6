// The user's own OpenSSH, on its way to a run's machine.
#ifndef GPUCTL_CLIENT_REACH_OPEN_SSH_H_
#define GPUCTL_CLIENT_REACH_OPEN_SSH_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/base/paths.h"
#include "client/base/port_pair.h"
#include "client/link/link.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// Returns a command line of ssh that ends before its options: the program, and the configuration
// that reaches the run's machine; SshHostOf is the host. Where the machine's key is not known yet,
// it makes a connection by `links` first. FAILED_PRECONDITION when there is no ssh here.
absl::StatusOr<std::vector<std::string>> SshCommandFor(CommandContext& context, const RunRow& row,
                                                       LinkFactory& links);
std::string SshHostOf(const RunRow& row);
// True where LinkFactory::TryLogin comes before OpenSSH: the machine's key is not known yet, or
// only a connection shows whether the machine can be reached by ssh at all.
bool NeedsLoginFirst(const ClientPaths& paths, const RunRow& row);

// Returns the argument of -L for a pair whose port here is set.
std::string ForwardArgument(const PortPair& pair);

// Replaces this process by the program. Returns only with an error.
absl::Status Become(const std::vector<std::string>& argv);

// In the environment of an ssh whose way to the machine shall end with the reader of its stderr: a
// killed gpuctl must leave no ssh behind that goes on forwarding.
inline constexpr char kLifeline[] = "GPUCTL_LIFELINE=stderr";
// Ends this process when its environment has kLifeline and nobody reads its stderr any more.
void FollowLifeline();

// Copies stdin to the socket and the socket to stdout, until the socket ends or stdout is gone.
// Does not wait for the end of stdin: the process must end soon.
absl::Status RelayStdio(UniqueFd socket);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_REACH_OPEN_SSH_H_
