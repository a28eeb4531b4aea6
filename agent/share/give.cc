#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <list>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/gang/addresses.h"
#include "agent/share/secret_pipe.h"
#include "agent/share/share.h"
#include "agent/share/share_line.h"
#include "agent/store/stored_files.h"
#include "agent/store/tree_store.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/files/byte_stream.h"
#include "common/job/job_layout.h"
#include "common/transfer/push.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kGiverWaits = absl::Seconds(5);
// Connections at once; further ones wait in the listener's queue.
constexpr int kMostConnections = 64;

// Serves one connection to its end.
absl::Status Serve(const std::string& trees, const std::string& key, UniqueFd socket) {
  Clock& clock = Clock::Real();
  ASSIGN_OR_RETURN(
      const std::unique_ptr<SecretPipe> pipe,
      SecretPipe::Open(std::move(socket), SecretPipe::Side::kGives, key, kGiverWaits, clock));
  ASSIGN_OR_RETURN(const std::string digest, ReadShareLine(pipe->fd()));
  if (!IsManifestDigest(digest)) return absl::InvalidArgumentError("this is no digest");
  // Nobody sweeps it away meanwhile.
  ASSIGN_OR_RETURN(const UniqueFd lock, LockTreeStore(trees, /*exclusive=*/false));
  ASSIGN_OR_RETURN(const Manifest manifest, ReadStoredManifest(trees, digest));
  TransferStream stream;
  stream.bytes = std::make_shared<FdStream>(pipe->fd(), pipe->fd());
  TransferOptions options;
  options.streams = 1;
  return PushTree(stream, StoredTreePath(trees, digest), manifest, PushTarget(), clock, options)
      .status();
}

// The threads that serve, each with its connection.
class Servers {
 public:
  Servers(std::string trees, std::string key) : trees_(std::move(trees)), key_(std::move(key)) {}

  void Begin(UniqueFd socket) {
    Sweep();
    auto& one = threads_.emplace_back(std::make_unique<One>());
    one->thread = std::thread([this, &one = *one, socket = std::move(socket)]() mutable {
      (void)Serve(trees_, key_, std::move(socket));
      one.over = true;
    });
  }
  bool IsFull() {
    Sweep();
    return threads_.size() >= kMostConnections;
  }

 private:
  struct One {
    std::thread thread;
    std::atomic<bool> over{false};
  };

  void Sweep() {
    threads_.remove_if([](const std::unique_ptr<One>& one) {
      if (!one->over) return false;
      one->thread.join();
      return true;
    });
  }

  const std::string trees_, key_;
  std::list<std::unique_ptr<One>> threads_;
};

absl::Status Give(const std::string& root, int in_fd, int out_fd) {
  ASSIGN_OR_RETURN(const std::string line, ReadShareLine(in_fd));
  ASSIGN_OR_RETURN(const ShareOrder order, ParseShareOrder(line, /*fetches=*/false));
  ASSIGN_OR_RETURN(const Listener listener, ListenEverywhere());
  RETURN_IF_ERROR(WriteShareLine(out_fd, {{"addresses", OwnAddresses()}, {"port", listener.port}}));
  // Whoever is served when the client goes is cut off by the process's end.
  auto* const servers = new Servers(RootPaths(root).trees, order.key);
  for (;;) {
    pollfd polled[] = {{in_fd, POLLIN, 0}, {servers->IsFull() ? -1 : listener.fd.get(), POLLIN, 0}};
    if (poll(polled, 2, 1000) < 0) continue;
    if (polled[0].revents != 0) return absl::OkStatus();
    if ((polled[1].revents & POLLIN) == 0) continue;
    UniqueFd socket(accept(listener.fd.get(), nullptr, nullptr));
    if (socket.valid()) servers->Begin(std::move(socket));
  }
}

}  // namespace

int RunGive(const std::string& root, int in_fd, int out_fd) {
  signal(SIGPIPE, SIG_IGN);
  const absl::Status status = Give(root, in_fd, out_fd);
  if (!status.ok()) (void)WriteShareLine(out_fd, {{"error", std::string(status.message())}});
  // Threads may still serve.
  _exit(status.ok() ? 0 : 1);
}

}  // namespace gpuctl
