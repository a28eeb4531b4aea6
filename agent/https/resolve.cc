#include "agent/https/resolve.h"

#include <ares.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

constexpr int kTryMs = 4000;
constexpr int kTries = 3;

HostAddress MakeAddress(const sockaddr* address, int port) {
  HostAddress made;
  char text[INET6_ADDRSTRLEN] = "";
  const auto network_port = htons(static_cast<uint16_t>(port));
  if (address->sa_family == AF_INET) {
    made.size = sizeof(sockaddr_in);
    std::memcpy(&made.storage, address, made.size);
    auto* ipv4 = reinterpret_cast<sockaddr_in*>(&made.storage);
    ipv4->sin_port = network_port;
    inet_ntop(AF_INET, &ipv4->sin_addr, text, sizeof(text));
  } else {
    made.size = sizeof(sockaddr_in6);
    std::memcpy(&made.storage, address, made.size);
    auto* ipv6 = reinterpret_cast<sockaddr_in6*>(&made.storage);
    ipv6->sin6_port = network_port;
    inet_ntop(AF_INET6, &ipv6->sin6_addr, text, sizeof(text));
  }
  made.text = text;
  return made;
}

bool ParseAddress(const std::string& host, int port, HostAddress& address) {
  sockaddr_in ipv4{};
  ipv4.sin_family = AF_INET;
  if (inet_pton(AF_INET, host.c_str(), &ipv4.sin_addr) == 1) {
    address = MakeAddress(reinterpret_cast<const sockaddr*>(&ipv4), port);
    return true;
  }
  sockaddr_in6 ipv6{};
  ipv6.sin6_family = AF_INET6;
  if (inet_pton(AF_INET6, host.c_str(), &ipv6.sin6_addr) == 1) {
    address = MakeAddress(reinterpret_cast<const sockaddr*>(&ipv6), port);
    return true;
  }
  return false;
}

struct Answer {
  bool done = false;
  int status = ARES_ENODATA;
  int port = 0;
  std::vector<HostAddress> addresses;
};

void TakeAnswer(void* argument, int status, int timeouts, ares_addrinfo* result) {
  (void)timeouts;
  auto* answer = static_cast<Answer*>(argument);
  answer->done = true;
  answer->status = status;
  if (result == nullptr) return;
  for (const ares_addrinfo_node* node = result->nodes; node != nullptr; node = node->ai_next) {
    if (node->ai_family != AF_INET && node->ai_family != AF_INET6) continue;
    answer->addresses.push_back(MakeAddress(node->ai_addr, answer->port));
  }
  ares_freeaddrinfo(result);
}

// Waits for the channel's sockets, at most `left`, and processes them.
void Turn(ares_channel channel, absl::Duration left) {
  ares_socket_t sockets[ARES_GETSOCK_MAXNUM];
  const int wanted = ares_getsock(channel, sockets, ARES_GETSOCK_MAXNUM);
  pollfd polled[ARES_GETSOCK_MAXNUM];
  nfds_t count = 0;
  for (int i = 0; i < ARES_GETSOCK_MAXNUM; ++i) {
    int events = 0;
    if (ARES_GETSOCK_READABLE(wanted, i)) events |= POLLIN;
    if (ARES_GETSOCK_WRITABLE(wanted, i)) events |= POLLOUT;
    if (events != 0) polled[count++] = {sockets[i], static_cast<short>(events), 0};
  }
  timeval most{};
  most.tv_sec = absl::ToInt64Seconds(left) + 1;
  timeval soonest{};
  const timeval* due = ares_timeout(channel, &most, &soonest);
  const int64_t wait_ms = int64_t{due->tv_sec} * 1000 + due->tv_usec / 1000 + 1;
  poll(polled, count,
       static_cast<int>(std::clamp(std::min(wait_ms, absl::ToInt64Milliseconds(left)), int64_t{1},
                                   int64_t{60'000})));
  // This call also processes time-outs.
  if (count == 0) ares_process_fd(channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
  for (nfds_t i = 0; i < count; ++i) {
    const bool broken = (polled[i].revents & (POLLERR | POLLHUP)) != 0;
    ares_process_fd(channel,
                    broken || (polled[i].revents & POLLIN) != 0 ? polled[i].fd : ARES_SOCKET_BAD,
                    broken || (polled[i].revents & POLLOUT) != 0 ? polled[i].fd : ARES_SOCKET_BAD);
  }
}

}  // namespace

absl::StatusOr<std::vector<HostAddress>> Resolve(const std::string& host, int port,
                                                 const std::string& name_server,
                                                 absl::Duration timeout, Clock& clock) {
  HostAddress address;
  if (ParseAddress(host, port, address)) return std::vector<HostAddress>{address};
  static const int library = ares_library_init(ARES_LIB_INIT_ALL);
  ares_options options{};
  options.timeout = kTryMs;
  options.tries = kTries;
  // With its own name server the channel must not use /etc/hosts.
  char lookups[] = "b";
  options.lookups = lookups;
  int mask = ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES;
  if (!name_server.empty()) mask |= ARES_OPT_LOOKUPS;
  ares_channel made = nullptr;
  const int status = library == ARES_SUCCESS ? ares_init_options(&made, &options, mask) : library;
  if (status != ARES_SUCCESS) {
    return absl::UnavailableError(absl::StrCat("resolve ", host, ": ", ares_strerror(status)));
  }
  Answer answer;
  answer.port = port;
  const std::unique_ptr<std::remove_pointer_t<ares_channel>, decltype(&ares_destroy)> channel(
      made, &ares_destroy);
  if (!name_server.empty() &&
      ares_set_servers_ports_csv(channel.get(), name_server.c_str()) != ARES_SUCCESS) {
    return absl::InvalidArgumentError(absl::StrCat("resolve: bad name server ", name_server));
  }
  ares_addrinfo_hints hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  ares_getaddrinfo(channel.get(), host.c_str(), nullptr, &hints, TakeAnswer, &answer);
  const absl::Duration deadline = clock.SinceBoot() + timeout;
  while (!answer.done) {
    const absl::Duration left = deadline - clock.SinceBoot();
    if (left <= absl::ZeroDuration()) ares_cancel(channel.get());
    if (!answer.done) Turn(channel.get(), left);
  }
  if (!answer.addresses.empty()) return answer.addresses;
  return absl::UnavailableError(absl::StrCat(
      "resolve ", host, ": ",
      answer.status == ARES_SUCCESS ? "it has no address" : ares_strerror(answer.status)));
}

}  // namespace gpuctl
