// Reads ssh destinations as users write them, and the output of ssh's own configuration.
#ifndef GPUCTL_CLIENT_HOSTS_SSH_CONFIG_H_
#define GPUCTL_CLIENT_HOSTS_SSH_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/base/node_target.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// Reads "host", "user@host", "user@host:port" or "user@[v6]:port". The port is 0 and the user empty
// when not given. INVALID_ARGUMENT, also for a host that begins with '-' (ssh would take it for an
// option).
absl::StatusOr<SshAddress> ParseSshDestination(absl::string_view destination);

// A host as ssh's configuration has it.
struct SshHost {
  SshAddress address;
  HostKeyRules host_key;
  bool identities_only = false;
};

// Returns the host from what `ssh -G <host>` prints: hostname, user, port, identityfile,
// identitiesonly, proxycommand, proxyjump (turned into an equal proxy command), and what it says of
// host keys. `home` replaces a leading "~". INVALID_ARGUMENT when there is no hostname.
absl::StatusOr<SshHost> ParseSshConfig(absl::string_view text, absl::string_view home);

// Returns "user@host:port": the machine's stable name.
std::string SshName(const SshAddress& address);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_HOSTS_SSH_CONFIG_H_
