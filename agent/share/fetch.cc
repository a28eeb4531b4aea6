#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/gang/addresses.h"
#include "agent/share/secret_pipe.h"
#include "agent/share/share.h"
#include "agent/share/share_line.h"
#include "agent/store/tree_store.h"
#include "agent/trees/receive.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/job/job_layout.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kConnectWithin = absl::Seconds(3);
// For all addresses together: a node that names many must not hold up the others.
constexpr absl::Duration kTryFor = absl::Seconds(30);
constexpr absl::Duration kFetcherWaits = absl::Seconds(10);

// Returns a connected socket.
absl::StatusOr<UniqueFd> ConnectTo(const std::string& address, int port, Clock& clock) {
  const std::optional<SocketAddress> at = ParseSocketAddress(address, port);
  if (!at.has_value()) return absl::InvalidArgumentError(absl::StrCat(address, " is no address"));
  UniqueFd fd(socket(at->storage.ss_family, SOCK_STREAM, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "make a socket");
  fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
  fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
  const auto failed = [&](int error) {
    return absl::UnavailableError(absl::StrCat(address, " port ", port, ": ", strerror(error)));
  };
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&at->storage), at->size) == 0) return fd;
  if (errno != EINPROGRESS) return failed(errno);
  const absl::Duration end = clock.SinceBoot() + kConnectWithin;
  pollfd polled{fd.get(), POLLOUT, 0};
  while (clock.SinceBoot() < end) {
    if (poll(&polled, 1, 100) <= 0) continue;
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return failed(error);
    return fd;
  }
  return failed(ETIMEDOUT);
}

class Fetcher {
 public:
  Fetcher(std::string root, ShareOrder order) : root_(std::move(root)), order_(std::move(order)) {}

  absl::Status Run() {
    const std::string trees = RootPaths(root_).trees;
    for (const std::string& digest : order_.trees) {
      if (UseStoredTree(trees, digest)) {
        ++there_;
        continue;
      }
      RETURN_IF_ERROR(Fetch(digest));
      ++fetched_;
    }
    return absl::OkStatus();
  }
  int there() const { return there_; }
  int fetched() const { return fetched_; }

 private:
  absl::Status Fetch(const std::string& digest) {
    ASSIGN_OR_RETURN(const std::unique_ptr<SecretPipe> pipe, Connect());
    RETURN_IF_ERROR(WriteAll(pipe->fd(), absl::StrCat(digest, "\n"), "to the other node"));
    const absl::Status received = ReceivePush(root_, pipe->fd(), pipe->fd());
    // A connection may break after the last byte, and the push may be one of another tree.
    if (HasStoredTree(RootPaths(root_).trees, digest)) return absl::OkStatus();
    RETURN_IF_ERROR(received);
    return absl::DataLossError("the other node sent something else");
  }

  // Tries the addresses, first the one that worked before.
  absl::StatusOr<std::unique_ptr<SecretPipe>> Connect() {
    absl::Status error = absl::UnavailableError("it has no address");
    const absl::Duration end = clock_.SinceBoot() + kTryFor;
    for (size_t i = 0; i < order_.addresses.size() && clock_.SinceBoot() < end; ++i) {
      const size_t index = (worked_ + i) % order_.addresses.size();
      absl::StatusOr<UniqueFd> socket = ConnectTo(order_.addresses[index], order_.port, clock_);
      error = socket.status();
      if (!socket.ok()) continue;
      absl::StatusOr<std::unique_ptr<SecretPipe>> pipe = SecretPipe::Open(
          *std::move(socket), SecretPipe::Side::kFetches, order_.key, kFetcherWaits, clock_);
      error = Annotate(pipe.status(), order_.addresses[index]);
      if (!pipe.ok()) continue;
      worked_ = index;
      return pipe;
    }
    return error;
  }

  const std::string root_;
  const ShareOrder order_;
  Clock& clock_ = Clock::Real();
  size_t worked_ = 0;  // the index of the address
  int there_ = 0, fetched_ = 0;
};

absl::Status FetchAll(const std::string& root, int in_fd, int out_fd) {
  ASSIGN_OR_RETURN(const std::string line, ReadShareLine(in_fd));
  ASSIGN_OR_RETURN(ShareOrder order, ParseShareOrder(line, /*fetches=*/true));
  Fetcher fetcher(root, std::move(order));
  RETURN_IF_ERROR(fetcher.Run());
  return WriteShareLine(out_fd, {{"there", fetcher.there()}, {"fetched", fetcher.fetched()}});
}

}  // namespace

int RunFetch(const std::string& root, int in_fd, int out_fd) {
  signal(SIGPIPE, SIG_IGN);
  const absl::Status status = FetchAll(root, in_fd, out_fd);
  if (status.ok()) return 0;
  (void)WriteShareLine(out_fd, {{"error", std::string(status.message())}});
  return 1;
}

}  // namespace gpuctl
