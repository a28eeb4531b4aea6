// The network addresses of this machine.
#ifndef GPUCTL_AGENT_GANG_ADDRESSES_H_
#define GPUCTL_AGENT_GANG_ADDRESSES_H_

#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// A numeric address with its port, for the socket calls.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};
// Returns nothing for what is no IPv4 or IPv6 address in digits.
std::optional<SocketAddress> ParseSocketAddress(absl::string_view address, int port);
// Returns the address in digits, without port; IPv4 in IPv6 as IPv4. "" for another family.
std::string AddressText(const sockaddr_storage& address);

// True for an address of a private network or of this machine alone: RFC 1918, RFC 6598 (shared
// address space), RFC 4193 (unique local IPv6), loopback.
bool IsPrivateAddress(absl::string_view address);
// Returns the addresses at which others may reach this machine: 127.0.0.1 first, for processes on
// it, then those of private networks, then the others; of each kind IPv4 first, and no IPv6 address
// that only counts on one link.
std::vector<std::string> OwnAddresses();
// Returns the name of the interface that has the address; "" when none has it.
std::string InterfaceOf(absl::string_view address);

// A listening socket on all addresses, at a port that the kernel gave.
struct Listener {
  UniqueFd fd;
  int port = 0;
};
absl::StatusOr<Listener> ListenEverywhere();
// Returns a port of the address that is free now.
absl::StatusOr<int> FreePort(absl::string_view address);

// The addresses of both ends of a connection; "" where it has none.
std::string LocalAddress(int fd);
std::string PeerAddress(int fd);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_GANG_ADDRESSES_H_
