#include "agent/bridge.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/base/change_notifier.h"
#include "agent/base/guard_start.h"
#include "agent/base/node_root.h"
#include "agent/bundle/bundle.h"
#include "agent/bundle/bundle_sweep.h"
#include "agent/guard_control.h"
#include "agent/limits/contact.h"
#include "agent/server_note.h"
#include "common/base/api_level.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/process/process.h"
#include "common/transfer/error_detail.h"
#include "common/transfer/fault_line.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kServerUpWithin = absl::Seconds(10);
constexpr size_t kBufferBytes = 256 << 10;

absl::StatusOr<UniqueFd> ConnectOnce() {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, "agent.sock");
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return ErrnoStatus(errno, "connect to agent.sock");
  }
  return fd;
}

// Returns the process at the other end of `fd`; 0 when the system does not tell.
pid_t PeerOf(int fd) {
#if defined(__linux__)
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) return peer.pid;
#else
  (void)fd;
#endif
  return 0;
}

// Connects to the server, which a guard may be starting at this moment. Waits while the server's
// level is lower than ours, because a newer server will replace it.
absl::StatusOr<UniqueFd> ConnectToServer(const RootPaths& paths, const std::string& bundle_dir) {
  if (chdir(paths.root.c_str()) != 0) return ErrnoStatus(errno, absl::StrCat("enter ", paths.root));
  Clock& clock = Clock::Real();
  const absl::Duration deadline = clock.SinceBoot() + kServerUpWithin;
  ChangeNotifier notifier;
  notifier.Add(paths.root);
  for (;;) {
    absl::StatusOr<UniqueFd> fd = ConnectOnce();
    const bool late = clock.SinceBoot() > deadline;
    if (!fd.ok() && late) return fd;
    const int32_t level = fd.ok() ? LevelOfServer(paths, PeerOf(fd->get())) : 0;
    if (fd.ok() && level >= kApiLevel) return fd;
    if (fd.ok() && late) {
      gpuctl::v1::ErrorDetail detail;
      detail.set_kind(gpuctl::v1::ErrorDetail::KIND_SERVER_STUCK);
      detail.set_root(paths.root);
      return WithDetail(
          absl::FailedPreconditionError(absl::StrCat("the agent's server here is older (api level ",
                                                     level, ", this gpuctl needs ", kApiLevel,
                                                     ") and has not made way for the new one")),
          detail);
    }
    fd = absl::UnavailableError("");
    RETURN_IF_ERROR(EnsureGuard(paths, bundle_dir));
    // A socket file appears a moment before the server listens.
    notifier.Wait(absl::Milliseconds(5));
  }
}

// One direction of the copy, with the bytes read from `from` and not yet written to `to`.
struct Flow {
  int from;
  int to;
  std::vector<char> buffer = std::vector<char>(kBufferBytes);
  size_t begin = 0;
  size_t end = 0;

  bool empty() const { return begin == end; }
  // False when the flow has ended.
  bool Read() {
    const ssize_t got = read(from, buffer.data(), buffer.size());
    if (got > 0) {
      begin = 0;
      end = static_cast<size_t>(got);
      return true;
    }
    return got < 0 && (errno == EAGAIN || errno == EINTR);
  }
  bool Write() {
    const ssize_t written = write(to, buffer.data() + begin, end - begin);
    if (written > 0) begin += static_cast<size_t>(written);
    return written >= 0 || errno == EAGAIN || errno == EINTR;
  }
};

absl::Status Greet(const RootPaths& paths, const BridgeOptions& options) {
  ASSIGN_OR_RETURN(const std::string node_id, NodeId(paths));
  return WriteAll(1,
                  absl::StrCat("\nGPUCTL-BRIDGE 1 ", BundleVersion(options.bundle_dir), " ",
                               node_id, " ", BootId(), "\n"),
                  "to the client");
}

// Waits for the first byte. Returns false when the input ends without any.
bool WaitForClient() {
  pollfd input{0, POLLIN, 0};
  while (poll(&input, 1, -1) < 0 && errno == EINTR) {
  }
  int bytes = 0;
  return ioctl(0, FIONREAD, &bytes) == 0 && bytes > 0;
}

absl::Status Bridge(const BridgeOptions& options) {
  ASSIGN_OR_RETURN(const RootPaths paths, PrepareNodeRoot(options.root));
  if (options.wait) {
    RETURN_IF_ERROR(Greet(paths, options));
    if (!WaitForClient()) return absl::OkStatus();
  }
  const Contact contact(paths, Clock::Real());
  NoteBundleUse(options.bundle_dir);
  ASSIGN_OR_RETURN(const bool upgraded, AdoptBundle(paths, options.bundle_dir));
  RETURN_IF_ERROR(EnsureGuard(paths, options.bundle_dir));
  if (upgraded) {
    // A guard that does not listen yet was just started, from the new bundle.
    const absl::Status sent = SendGuardCommand(paths, "upgrade");
    if (!sent.ok() && !absl::IsFailedPrecondition(sent)) return sent;
  }
  ASSIGN_OR_RETURN(const UniqueFd server, ConnectToServer(paths, options.bundle_dir));
  if (!options.wait) RETURN_IF_ERROR(Greet(paths, options));
  CopyStdio(server.get());
  return absl::OkStatus();
}

}  // namespace

void CopyStdio(int socket_fd) {
  for (const int fd : {0, 1, socket_fd}) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  Flow up{0, socket_fd};
  Flow down{socket_fd, 1};
  for (;;) {
    // poll reports errors on a descriptor whatever events are requested. read() ends a reading
    // flow.
    pollfd waited[4] = {{up.empty() ? 0 : -1, POLLIN, 0},
                        {up.empty() ? -1 : socket_fd, POLLOUT, 0},
                        {down.empty() ? socket_fd : -1, POLLIN, 0},
                        {1, static_cast<short>(down.empty() ? 0 : POLLOUT), 0}};
    if (poll(waited, 4, -1) < 0 && errno != EINTR) return;
    if (waited[0].revents != 0 && !up.Read()) return;
    if (!up.empty() && !up.Write()) return;
    if (waited[2].revents != 0 && !down.Read()) return;
    if (!down.empty() && !down.Write()) return;
    if ((waited[3].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) return;
  }
}

int RunBridge(const BridgeOptions& options) {
  signal(SIGPIPE, SIG_IGN);
  const absl::Status status = Bridge(options);
  if (status.ok()) return 0;
  const gpuctl::v1::ErrorDetail detail = DetailToSend(status);
  if (detail.kind() != gpuctl::v1::ErrorDetail::KIND_UNSPECIFIED) {
    // A client that is gone reads nothing.
    (void)WriteAll(1, FormatFaultLine(detail), "to the client");
  }
  fprintf(stderr, "gpuctl-agent: bridge: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace gpuctl
