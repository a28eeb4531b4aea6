// The dashboard's server on 127.0.0.1. It never waits and has no thread: its owner polls.
#ifndef GPUCTL_CLIENT_DASHBOARD_HTTP_SERVER_H_
#define GPUCTL_CLIENT_DASHBOARD_HTTP_SERVER_H_

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/dashboard/http_message.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

class HttpServer {
 public:
  static constexpr size_t kMostConnections = 64;
  static constexpr size_t kMostStreams = 16;
  // A request must be whole, and an answer read, within this time; a stream must take something.
  static constexpr absl::Duration kPatience = absl::Seconds(10);
  static constexpr absl::Duration kStreamPatience = absl::Seconds(60);

  // Answers a request. `stream` is the number of the connection: after a reply with is_stream, Send
  // reaches it.
  using Handler = std::function<PageReply(const PageRequest& request, int64_t stream)>;

  // Listens on 127.0.0.1; port 0 takes a free one. FAILED_PRECONDITION when the port is taken.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Listen(int port, Clock& clock);

  int port() const { return port_; }
  // Adds what to poll.
  void AddPolled(std::vector<pollfd>& polled) const;
  // Takes new connections, reads requests, answers them, and writes what is left to write: as far
  // as that needs no waiting.
  void Serve(const Handler& handler);

  // The streams that are open.
  std::vector<int64_t> streams() const;
  bool HasStream(int64_t stream) const;
  // Adds bytes for a stream; Serve writes them.
  void Send(int64_t stream, absl::string_view bytes);
  // Returns how many bytes its reader has not taken yet.
  size_t Unsent(int64_t stream) const;
  size_t connections() const { return connections_.size(); }

 private:
  struct Connection {
    UniqueFd fd;
    std::string in, out;
    size_t written = 0;    // of `out`
    bool replied = false;  // closed when `out` is written, unless it is a stream
    bool is_stream = false;
    bool closing = false;  // all is written; the peer's rest is awaited
    bool ended = false;    // the peer sends nothing more
    bool broken = false;
    absl::Duration moved_at;  // since boot: when its peer last did something
  };

  HttpServer(UniqueFd listener, int port, Clock& clock)
      : listener_(std::move(listener)), port_(port), clock_(clock) {}

  void Accept();
  void Read(Connection& connection);
  void Answer(int64_t number, Connection& connection, const Handler& handler);
  void Write(Connection& connection);

  UniqueFd listener_;
  const int port_;
  Clock& clock_;
  absl::Duration accept_at_ = absl::ZeroDuration();  // since boot: no descriptor was free before
  int64_t next_ = 1;
  std::map<int64_t, Connection> connections_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_DASHBOARD_HTTP_SERVER_H_
