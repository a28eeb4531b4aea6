#include "agent/gang/addresses.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr char kLoopback[] = "127.0.0.1";
constexpr int kBacklog = 64;

// Sets what every socket of ours has: it does not block, and no child gets it.
bool Prepare(int fd) {
  return fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0;
}

struct NamedAddress {
  std::string interface;
  std::string address;
  bool v6 = false;
};

std::vector<NamedAddress> ListAddresses() {
  std::vector<NamedAddress> named;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return named;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> freed(first, &freeifaddrs);
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    sockaddr_storage storage{};
    memcpy(&storage, each->ifa_addr,
           family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (family == AF_INET6) {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
      if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) || IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr)) continue;
    }
    named.push_back({each->ifa_name, AddressText(storage), family == AF_INET6});
  }
  return named;
}

int PortOf(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return 0;
  return storage.ss_family == AF_INET
             ? ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port)
             : ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
}

}  // namespace

std::optional<SocketAddress> ParseSocketAddress(absl::string_view address, int port) {
  SocketAddress parsed;
  const std::string text(address);
  auto* v4 = reinterpret_cast<sockaddr_in*>(&parsed.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&parsed.storage);
  if (port <= 0 || port > 65535) return std::nullopt;
  if (inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
    parsed.size = sizeof(sockaddr_in);
    return parsed;
  }
  if (inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) != 1) return std::nullopt;
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(static_cast<uint16_t>(port));
  parsed.size = sizeof(sockaddr_in6);
  return parsed;
}

std::string AddressText(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
    return inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text)) == nullptr ? "" : text;
  }
  if (address.ss_family != AF_INET6) return "";
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
  if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
    return inet_ntop(AF_INET, v6->sin6_addr.s6_addr + 12, text, sizeof(text)) == nullptr ? ""
                                                                                         : text;
  }
  return inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text)) == nullptr ? "" : text;
}

bool IsPrivateAddress(absl::string_view address) {
  const std::string text(address);
  in_addr v4{};
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) {
    const uint32_t bits = ntohl(v4.s_addr);
    const auto in = [bits](uint32_t network, int length) {
      return bits >> (32 - length) == network >> (32 - length);
    };
    return in(0x0a000000, 8) || in(0xac100000, 12) || in(0xc0a80000, 16) || in(0x64400000, 10) ||
           in(0x7f000000, 8);
  }
  in6_addr v6{};
  if (inet_pton(AF_INET6, text.c_str(), &v6) != 1) return false;
  return (v6.s6_addr[0] & 0xfe) == 0xfc || IN6_IS_ADDR_LOOPBACK(&v6);
}

std::vector<std::string> OwnAddresses() {
  std::vector<std::string> addresses = {kLoopback};
  std::vector<NamedAddress> named = ListAddresses();
  std::stable_sort(named.begin(), named.end(), [](const NamedAddress& a, const NamedAddress& b) {
    const auto place = [](const NamedAddress& one) {
      return std::make_pair(!IsPrivateAddress(one.address), one.v6);
    };
    return place(a) < place(b);
  });
  for (const NamedAddress& each : named) {
    if (each.address.rfind("127.", 0) == 0 || each.address.empty()) continue;
    const bool known =
        std::find(addresses.begin(), addresses.end(), each.address) != addresses.end();
    if (!known) addresses.push_back(each.address);
  }
  return addresses;
}

std::string InterfaceOf(absl::string_view address) {
  for (const NamedAddress& each : ListAddresses()) {
    if (each.address == address) return each.interface;
  }
  return "";
}

absl::StatusOr<Listener> ListenEverywhere() {
  Listener listener;
  for (const int family : {AF_INET6, AF_INET}) {
    listener.fd.reset(socket(family, SOCK_STREAM, 0));
    if (!listener.fd.valid()) continue;
    const int off = 0;
    if (family == AF_INET6) {
      setsockopt(listener.fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    sockaddr_storage any{};
    any.ss_family = static_cast<sa_family_t>(family);
    const socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    if (Prepare(listener.fd.get()) &&
        bind(listener.fd.get(), reinterpret_cast<const sockaddr*>(&any), size) == 0 &&
        listen(listener.fd.get(), kBacklog) == 0) {
      listener.port = PortOf(listener.fd.get());
      return listener;
    }
  }
  return ErrnoStatus(errno, "listen for the other members");
}

absl::StatusOr<int> FreePort(absl::string_view address) {
  const std::optional<SocketAddress> parsed = ParseSocketAddress(address, 1);
  if (!parsed.has_value()) return absl::InvalidArgumentError("find a free port: bad address");
  SocketAddress at = *parsed;
  if (at.storage.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&at.storage)->sin_port = 0;
  } else {
    reinterpret_cast<sockaddr_in6*>(&at.storage)->sin6_port = 0;
  }
  const UniqueFd fd(socket(at.storage.ss_family, SOCK_STREAM, 0));
  if (!fd.valid() || !Prepare(fd.get()) ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&at.storage), at.size) != 0) {
    return ErrnoStatus(errno, absl::StrCat("find a free port of ", address));
  }
  return PortOf(fd.get());
}

std::string LocalAddress(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return "";
  return AddressText(storage);
}

std::string PeerAddress(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return "";
  return AddressText(storage);
}

}  // namespace gpuctl
