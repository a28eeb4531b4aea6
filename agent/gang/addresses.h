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

// Returns the addresses at which others may reach this machine: 127.0.0.1 first, for processes on
// it, then IPv4, then IPv6 without those that only count on one link.
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
