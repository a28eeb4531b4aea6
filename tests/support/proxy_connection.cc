#include "tests/support/proxy_connection.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace gpuctl {
namespace {

constexpr size_t kMaxQueuedBytes = 64 << 20;
constexpr size_t kReadBytes = 256 << 10;
// With a limited rate: the size of a step, and the bytes that the line takes ahead of those on
// their way.
constexpr size_t kSlowReadBytes = 4 << 10;
constexpr size_t kSlowQueuedBytes = 128 << 10;

size_t MaxQueued(const ProxyRules& rules) {
  if (rules.bytes_per_second == 0) return kMaxQueuedBytes;
  return kSlowQueuedBytes + static_cast<size_t>(static_cast<double>(rules.bytes_per_second) *
                                                absl::ToDoubleSeconds(rules.delay));
}

// True when nothing can be done now. Any other error ends the connection.
bool WouldBlock(int error_number) {
  return error_number == EAGAIN || error_number == EWOULDBLOCK || error_number == EINTR ||
         error_number == ENOTCONN;  // still connecting
}

}  // namespace

ProxyConnection::ProxyConnection(UniqueFd first, UniqueFd second, bool swallow)
    : sockets_{std::move(first), std::move(second)}, swallow_(swallow) {
  for (const UniqueFd& socket : sockets_) {
    if (!socket.valid()) continue;
    fcntl(socket.get(), F_SETFL, fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
    // It fails on sockets that are not TCP, which have no such delay.
    const int on = 1;
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
}

void ProxyConnection::Want(const ProxyRules& rules, absl::Duration now, pollfd polls[2]) const {
  for (int i = 0; i < 2; ++i) {
    const Flow& from = flows_[i];
    const Flow& to = flows_[1 - i];
    short events = 0;
    if (!from.ended && !rules.stalled && from.queued_bytes < MaxQueued(rules)) events |= POLLIN;
    if (!to.queue.empty() && to.queue.front().due <= now) events |= POLLOUT;
    // Without events there is no descriptor, because poll would report a hang-up for ever.
    polls[i] = {events != 0 ? sockets_[i].get() : -1, events, 0};
  }
}

absl::Duration ProxyConnection::NextDue(absl::Duration now) const {
  absl::Duration due = absl::InfiniteDuration();
  for (const Flow& flow : flows_) {
    // Bytes that are due already wait for room, which the socket reports.
    if (!flow.queue.empty() && flow.queue.front().due > now) {
      due = std::min(due, flow.queue.front().due);
    }
  }
  return due;
}

bool ProxyConnection::Move(ProxyRules& rules, absl::Duration now, const pollfd polls[2],
                           int64_t forwarded[2]) {
  for (int i = 0; i < 2; ++i) {
    if ((polls[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && (polls[i].events & POLLIN) != 0 &&
        !Read(i, flows_[i], rules, now)) {
      return false;
    }
  }
  if (swallow_) return true;
  for (int i = 0; i < 2; ++i) {
    if (!Write(sockets_[1 - i].get(), flows_[i], now, rules.room[i], forwarded[i])) return false;
  }
  return !(flows_[0].closed && flows_[1].closed);
}

bool ProxyConnection::Read(int from, Flow& flow, ProxyRules& rules, absl::Duration now) {
  std::string bytes(rules.bytes_per_second == 0 ? kReadBytes : kSlowReadBytes, '\0');
  const ssize_t got = recv(sockets_[from].get(), bytes.data(), bytes.size(), 0);
  if (got < 0) return WouldBlock(errno) || swallow_;
  if (got == 0) flow.ended = true;
  if (swallow_ || got == 0) return true;
  bytes.resize(static_cast<size_t>(got));
  bytes.shrink_to_fit();
  flow.queued_bytes += bytes.size();
  if (rules.bytes_per_second > 0) {
    now = rules.free_at[from] =
        std::max(now, rules.free_at[from]) +
        absl::Seconds(static_cast<double>(got) / static_cast<double>(rules.bytes_per_second));
  }
  flow.queue.push_back({now + rules.delay, std::move(bytes)});
  return true;
}

bool ProxyConnection::Write(int to, Flow& flow, absl::Duration now, int64_t& room,
                            int64_t& forwarded) {
  while (!flow.queue.empty() && flow.queue.front().due <= now) {
    if (room <= 0) return true;
    const std::string& bytes = flow.queue.front().bytes;
    const size_t size =
        std::min<size_t>(bytes.size() - flow.sent_of_front, static_cast<size_t>(room));
    const ssize_t sent = send(to, bytes.data() + flow.sent_of_front, size, 0);
    if (sent < 0) return WouldBlock(errno);
    room -= sent;
    forwarded += sent;
    flow.sent_of_front += static_cast<size_t>(sent);
    flow.queued_bytes -= static_cast<size_t>(sent);
    if (static_cast<size_t>(sent) < size) return true;
    if (flow.sent_of_front < bytes.size()) continue;
    flow.queue.pop_front();
    flow.sent_of_front = 0;
  }
  if (flow.ended && flow.queue.empty() && !flow.closed) {
    shutdown(to, SHUT_WR);
    flow.closed = true;
  }
  return true;
}

void ProxyConnection::Swallow() {
  swallow_ = true;
  for (Flow& flow : flows_) {
    flow.queue.clear();
    flow.queued_bytes = 0;
    flow.sent_of_front = 0;
  }
}

void ProxyConnection::Reset() {
  for (UniqueFd& socket : sockets_) {
    if (!socket.valid()) continue;
    const linger at_once = {1, 0};
    setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    socket.reset();
  }
}

}  // namespace gpuctl
