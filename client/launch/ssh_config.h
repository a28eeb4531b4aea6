// Machines as users of ssh write them, and what ssh's own configuration says of them.
#ifndef GPUCTL_CLIENT_LAUNCH_SSH_CONFIG_H_
#define GPUCTL_CLIENT_LAUNCH_SSH_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// Reads "host", "user@host", "user@host:port" or "user@[v6]:port". Port 0 and an empty user when
// not given. INVALID_ARGUMENT, also for a host that begins with '-' (ssh would take it for an
// option).
absl::StatusOr<SshAddress> ParseSshDestination(absl::string_view destination);

// Returns the address out of what `ssh -G <host>` prints: hostname, user, port, identityfile,
// proxycommand, proxyjump (as the proxy command that does it). `home` replaces a leading "~".
// INVALID_ARGUMENT when there is no hostname in it.
absl::StatusOr<SshAddress> ParseSshConfig(absl::string_view text, absl::string_view home);

// Returns "user@host:port": the machine's stable name.
std::string SshName(const SshAddress& address);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LAUNCH_SSH_CONFIG_H_
