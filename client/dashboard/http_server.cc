#include "client/dashboard/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kAcceptAgainAfter = absl::Milliseconds(200);
constexpr size_t kReadBytes = 8 << 10;
constexpr size_t kMostInBytes = kMostHeadBytes + 4 + kMostBodyBytes;

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

bool MakeOwn(int fd) {
  return fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 &&
         fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Listen(int port, Clock& clock) {
  UniqueFd listener(socket(AF_INET, SOCK_STREAM, 0));
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (!listener.valid() || !MakeOwn(listener.get()) ||
      setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(listener.get(), any, size) != 0 || listen(listener.get(), 64) != 0 ||
      getsockname(listener.get(), any, &size) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("listen on 127.0.0.1:", port, ": ", strerror(errno)));
  }
  return std::unique_ptr<HttpServer>(
      new HttpServer(std::move(listener), ntohs(address.sin_port), clock));
}

void HttpServer::AddPolled(std::vector<pollfd>& polled) const {
  if (clock_.SinceBoot() >= accept_at_) polled.push_back({listener_.get(), POLLIN, 0});
  for (const auto& [number, connection] : connections_) {
    // The end of what a peer sends can be read again and again.
    const int reads = connection.ended ? 0 : POLLIN;
    const int writes = connection.written < connection.out.size() ? POLLOUT : 0;
    polled.push_back({connection.fd.get(), static_cast<int16_t>(reads | writes), 0});
  }
}

void HttpServer::Accept() {
  if (clock_.SinceBoot() < accept_at_) return;
  for (size_t taken = 0; taken < kMostConnections; ++taken) {
    UniqueFd fd(accept(listener_.get(), nullptr, nullptr));
    if (!fd.valid()) {
      // The next one waits in the system's queue: to ask for it at once would be a busy loop.
      if (!WouldBlock()) accept_at_ = clock_.SinceBoot() + kAcceptAgainAfter;
      return;
    }
    if (!MakeOwn(fd.get())) continue;
#ifdef SO_NOSIGPIPE
    const int on = 1;
    (void)setsockopt(fd.get(), SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof(on));
#endif
    Connection connection;
    connection.fd = std::move(fd);
    connection.moved_at = clock_.SinceBoot();
    if (connections_.size() >= kMostConnections) {
      // It is told, as far as that needs no waiting, and closed.
      PageReply reply;
      reply.status = 503;
      reply.body = "too many connections\n";
      connection.out = FormatReply(reply);
      Write(connection);
      continue;
    }
    connections_.emplace(next_++, std::move(connection));
  }
}

void HttpServer::Read(Connection& connection) {
  char buffer[kReadBytes];
  // More than a request has is read away, and not kept.
  for (int reads = 0; reads < 8; ++reads) {
    const ssize_t count = recv(connection.fd.get(), buffer, sizeof(buffer), 0);
    if (count < 0 && WouldBlock()) return;
    if (count <= 0) {
      // The page went away. One who asked and closed only his side still wants his answer.
      connection.ended = count == 0;
      if (count < 0 || connection.is_stream || connection.closing || connection.in.empty()) {
        connection.broken = true;
      }
      return;
    }
    if (connection.replied) continue;
    connection.moved_at = clock_.SinceBoot();
    if (connection.in.size() <= kMostInBytes) {
      connection.in.append(buffer, static_cast<size_t>(count));
    }
  }
}

void HttpServer::Answer(int64_t number, Connection& connection, const Handler& handler) {
  PageRequest request;
  PageReply reply;
  switch (ParseRequest(connection.in, request, reply.status)) {
    case Parsed::kIncomplete:
      return;
    case Parsed::kBad:
      reply.body = "this is no request that is understood here\n";
      break;
    case Parsed::kWhole:
      reply = handler(request, number);
      if (reply.is_stream && streams().size() >= kMostStreams) {
        reply = PageReply();
        reply.status = 503;
        reply.body = "too many pages are open\n";
      }
      break;
  }
  connection.replied = true;
  connection.is_stream = reply.is_stream;
  // What the handler sent into the stream comes behind the head.
  connection.out = FormatReply(reply, request.method == "HEAD") + connection.out;
  connection.moved_at = clock_.SinceBoot();
}

void HttpServer::Write(Connection& connection) {
#ifdef MSG_NOSIGNAL
  constexpr int kFlags = MSG_NOSIGNAL;
#else
  constexpr int kFlags = 0;
#endif
  while (connection.written < connection.out.size()) {
    const ssize_t count = send(connection.fd.get(), connection.out.data() + connection.written,
                               connection.out.size() - connection.written, kFlags);
    if (count < 0 && WouldBlock()) return;
    if (count <= 0) {
      connection.broken = true;
      return;
    }
    connection.moved_at = clock_.SinceBoot();
    connection.written += static_cast<size_t>(count);
  }
  connection.out.clear();
  connection.written = 0;
  if (!connection.replied || connection.is_stream || connection.closing) return;
  // A close with unread bytes would reset the connection, and the peer might lose the answer.
  connection.closing = true;
  (void)shutdown(connection.fd.get(), SHUT_WR);
}

void HttpServer::Serve(const Handler& handler) {
  Accept();
  const absl::Duration now = clock_.SinceBoot();
  for (auto& [number, connection] : connections_) {
    Read(connection);
    if (!connection.broken && !connection.replied) Answer(number, connection, handler);
    // The rest of a request that is cut off never comes.
    if (connection.ended && !connection.replied) connection.broken = true;
    if (!connection.broken) Write(connection);
    if (connection.ended && connection.closing) connection.broken = true;
    // A stream without news is no slow one.
    const bool idle_stream = connection.is_stream && connection.out.empty();
    const absl::Duration patience = connection.is_stream ? kStreamPatience : kPatience;
    if (!idle_stream && now - connection.moved_at > patience) connection.broken = true;
  }
  for (auto it = connections_.begin(); it != connections_.end();) {
    it = it->second.broken ? connections_.erase(it) : std::next(it);
  }
}

std::vector<int64_t> HttpServer::streams() const {
  std::vector<int64_t> numbers;
  for (const auto& [number, connection] : connections_) {
    if (connection.is_stream) numbers.push_back(number);
  }
  return numbers;
}

bool HttpServer::HasStream(int64_t stream) const {
  const auto found = connections_.find(stream);
  return found != connections_.end() && found->second.is_stream;
}

void HttpServer::Send(int64_t stream, absl::string_view bytes) {
  const auto found = connections_.find(stream);
  if (found == connections_.end()) return;
  if (found->second.out.empty()) found->second.moved_at = clock_.SinceBoot();
  found->second.out.append(bytes.data(), bytes.size());
}

size_t HttpServer::Unsent(int64_t stream) const {
  const auto found = connections_.find(stream);
  return found == connections_.end() ? 0 : found->second.out.size() - found->second.written;
}

}  // namespace gpuctl
