#include "client/reach/local_port.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"

namespace gpuctl {
namespace {

constexpr int kTrials = 100;
// Added to a port that only root may use.
constexpr int kUnprivileged = 8000;
constexpr int kFirstUnprivileged = 1024;
constexpr int kLastPort = 65535;

// Returns a free port that no other pair has; 0 when there is none near.
int FreePortNear(int wanted, const std::set<int>& taken) {
  for (int i = 0; i < kTrials; ++i) {
    int port = wanted + i;
    if (wanted < kFirstUnprivileged && i > 0) port += kUnprivileged - 1;
    if (port > kLastPort) port = kFirstUnprivileged + port - kLastPort;
    if (taken.count(port) == 0 && IsFreeLocalPort(port)) return port;
  }
  return 0;
}

}  // namespace

bool IsFreeLocalPort(int port) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
  if (!fd.valid()) return false;
  fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
  const int on = 1;
  // As ssh does: connections that have just ended do not keep the port.
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
         listen(fd.get(), 1) == 0;
}

bool IsThisComputer(const NodeTarget& target) {
  if (target.provider == "local") return true;
  if (!target.proxy_command.empty()) return false;
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(target.host.c_str(), nullptr, &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    const UniqueFd fd(socket(address->ai_family, SOCK_DGRAM, 0));
    if (!fd.valid()) continue;
    fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
    // Only an address of this computer can be bound.
    if (bind(fd.get(), address->ai_addr, address->ai_addrlen) == 0) return true;
  }
  return false;
}

absl::Status ChooseLocalPorts(const NodeTarget& target, std::vector<PortPair>& pairs) {
  std::set<int> taken, there;
  if (IsThisComputer(target)) {
    for (const PortPair& pair : pairs) there.insert(pair.port);
  }
  taken = there;
  for (const PortPair& pair : pairs) {
    if (pair.local == 0) continue;
    if (there.count(pair.local) > 0) {
      return WithHint(absl::FailedPreconditionError(
                          absl::StrCat("port ", pair.local,
                                       " would lead to itself: the run's machine is this "
                                       "computer")),
                      absl::StrCat("use the port as it is, or name another: ", pair.port, ":PORT"));
    }
    if (!IsFreeLocalPort(pair.local)) {
      return WithHint(
          absl::FailedPreconditionError(absl::StrCat(
              "port ", pair.local, " of this computer is in use, or not for you to use")),
          absl::StrCat("name another: ", pair.port, ":PORT, or only ", pair.port,
                       " for any that is free"));
    }
    taken.insert(pair.local);
  }
  for (PortPair& pair : pairs) {
    if (pair.local != 0) continue;
    pair.local = FreePortNear(pair.port, taken);
    if (pair.local == 0) {
      return WithHint(absl::FailedPreconditionError(
                          absl::StrCat("no port of this computer is free from ", pair.port, " on")),
                      absl::StrCat("name one: ", pair.port, ":PORT"));
    }
    taken.insert(pair.local);
  }
  return absl::OkStatus();
}

}  // namespace gpuctl
