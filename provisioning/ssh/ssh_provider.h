// A machine the user already has and reaches by ssh: nothing is rented, nothing bills.
#ifndef GPUCTL_PROVISIONING_SSH_SSH_PROVIDER_H_
#define GPUCTL_PROVISIONING_SSH_SSH_PROVIDER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "provisioning/provider.h"

namespace gpuctl {

// Offers the one machine at `address`, which is complete (see ParseSshConfig).
std::unique_ptr<Provider> MakeSshProvider(SshAddress address);

// "host", "user@host", "user@host:port", "user@[v6]:port". Port 0 and an empty user when not given.
// INVALID_ARGUMENT, also for a host that begins with '-' (ssh would take it for an option).
absl::StatusOr<SshAddress> ParseSshDestination(absl::string_view destination);

// The address out of what `ssh -G <host>` prints: hostname, user, port, identityfile, proxycommand,
// proxyjump (as the proxy command that does it). `home` replaces a leading "~". INVALID_ARGUMENT
// when there is no hostname in it.
absl::StatusOr<SshAddress> ParseSshConfig(absl::string_view text, absl::string_view home);

// "user@host:port": the machine's stable name.
std::string SshName(const SshAddress& address);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_SSH_SSH_PROVIDER_H_
