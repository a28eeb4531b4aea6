#include "client/warm/warm_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/base/host_keys.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/files/sha256.h"
#include "common/process/process.h"

namespace gpuctl {
namespace {

// Raised with each change of the messages.
constexpr char kProtocol[] = "1";
constexpr size_t kHeaderBytes = 5;
constexpr size_t kLongestMessage = 4 << 20;
constexpr absl::Duration kStateWithin = absl::Seconds(1);

void MakePrivate(int fd) {
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
#if defined(SO_NOSIGPIPE)
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof(on));
#endif
}

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return address;
}

// Sends one message and returns the answer; nothing when none came in time.
std::optional<std::string> AskOnce(const std::string& path, WarmWord word) {
  const absl::StatusOr<UniqueFd> fd = ConnectToHolder(path);
  if (!fd.ok() || !SendWithFd(fd->get(), WarmMessage(word, ""), -1)) return std::nullopt;
  const absl::Duration deadline = Clock::Real().SinceBoot() + kStateWithin;
  std::string input;
  std::pair<WarmWord, std::string> message;
  for (;;) {
    const absl::StatusOr<bool> taken = TakeMessage(input, message);
    if (!taken.ok()) return std::nullopt;
    if (*taken && message.first == word) return message.second;
    if (*taken) continue;
    const absl::Duration left = deadline - Clock::Real().SinceBoot();
    if (left <= absl::ZeroDuration()) return std::nullopt;
    pollfd waited{fd->get(), POLLIN, 0};
    if (poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) <= 0) continue;
    UniqueFd none;
    const ssize_t got = ReceiveWithFd(fd->get(), input, none);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return std::nullopt;
  }
}

// Returns the sockets of holders that live.
std::vector<std::string> LiveSockets(const std::string& state_dir) {
  std::vector<std::string> sockets;
  const std::string dir = WarmDirectory(state_dir);
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(dir);
  if (!names.ok()) return sockets;
  for (const std::string& name : *names) {
    if (!absl::EndsWith(name, ".lock")) continue;
    const std::string stem = name.substr(0, name.size() - 5);
    if (!IsLocked(JoinPath(dir, name)).value_or(false)) continue;
    sockets.push_back(JoinPath(dir, absl::StrCat(stem, ".sock")));
  }
  return sockets;
}

// Sends a signal to the holder with this lock, if it lives.
void SignalHolder(const std::string& lock, int signal) {
  const absl::StatusOr<std::string> noted = ReadFileToString(lock, 64);
  int pid = 0;
  // While the file is locked, the process that it names lives.
  if (noted.ok() && absl::SimpleAtoi(*noted, &pid) && pid > 1 && IsLocked(lock).value_or(false)) {
    kill(pid, signal);
  }
}

// Ends a holder that does not answer: it hangs, or still connects.
void EndByForce(const std::string& socket) {
  SignalHolder(absl::StrCat(socket.substr(0, socket.size() - 5), ".lock"), SIGKILL);
  unlink(socket.c_str());
}

}  // namespace

void WakeHolder(const WarmPlace& place) { SignalHolder(place.lock, SIGCONT); }

std::string WarmDirectory(const std::string& state_dir) { return JoinPath(state_dir, "links"); }

bool FitsSocketPath(const std::string& path) { return path.size() < sizeof(sockaddr_un::sun_path); }

absl::StatusOr<WarmPlace> FindWarmPlace(const std::string& state_dir, const NodeTarget& target) {
  const std::string dir = WarmDirectory(state_dir);
  RETURN_IF_ERROR(MakeDirectories(dir));
  struct stat info {};
  if (stat(dir.c_str(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("look at ", dir));
  if (info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(dir, ": others may write or read there, so no connection is kept"));
  }
  const absl::StatusOr<std::string> pin = ReadFileToString(
      HostKeyFile(JoinPath(state_dir, "ssh/host-keys"), PinName(target)), int64_t{64} << 10);
  RETURN_IF_ERROR(pin.status());
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  std::string key = absl::StrCat(kProtocol, "\n", GPUCTL_VERSION, "\n", host, "\n", *pin);
  for (const std::string& part :
       {target.provider, target.name, target.host, absl::StrCat(target.port), target.user,
        target.proxy_command, target.given_host_key,
        std::string(target.identities_only ? "only" : ""), target.root}) {
    absl::StrAppend(&key, "\n", part.size(), " ", part);
  }
  for (const std::string& file : target.identity_files) absl::StrAppend(&key, "\nkey ", file);
  const std::string stem = JoinPath(dir, Sha256HexOf(key).substr(0, 12));
  WarmPlace place{absl::StrCat(stem, ".sock"), absl::StrCat(stem, ".lock")};
  if (!FitsSocketPath(place.socket)) {
    return absl::FailedPreconditionError(
        absl::StrCat(place.socket, ": this path is too long for a socket"));
  }
  return place;
}

std::string AskBytes(const WarmAsk& ask) {
  std::string bytes = ask.magic;
  bytes.push_back('\0');
  absl::StrAppend(&bytes, ask.repeats ? "1" : "0", ask.line);
  return bytes;
}

std::optional<WarmAsk> ParseAsk(absl::string_view bytes) {
  const size_t end = bytes.find('\0');
  if (end == bytes.npos || end + 2 > bytes.size()) return std::nullopt;
  WarmAsk ask;
  ask.magic = std::string(bytes.substr(0, end));
  ask.repeats = bytes[end + 1] == '1';
  ask.line = std::string(bytes.substr(end + 2));
  if (absl::StrContains(ask.line, '\0') || ask.line.empty()) return std::nullopt;
  return ask;
}

std::string WarmMessage(WarmWord word, absl::string_view bytes) {
  std::string message(kHeaderBytes, '\0');
  const auto size = static_cast<uint32_t>(bytes.size());
  std::memcpy(message.data(), &size, sizeof(size));
  message[4] = static_cast<char>(word);
  message.append(bytes.data(), bytes.size());
  return message;
}

absl::StatusOr<bool> TakeMessage(std::string& input, std::pair<WarmWord, std::string>& message) {
  if (input.size() < kHeaderBytes) return false;
  uint32_t size = 0;
  std::memcpy(&size, input.data(), sizeof(size));
  if (size > kLongestMessage) return absl::InvalidArgumentError("a message is too long");
  if (input.size() < kHeaderBytes + size) return false;
  message = {static_cast<WarmWord>(input[4]), input.substr(kHeaderBytes, size)};
  input.erase(0, kHeaderBytes + size);
  return true;
}

bool SendWithFd(int socket, absl::string_view bytes, int fd) {
  // An own buffer: the type of CMSG_SPACE's is no constant on a Mac.
  alignas(cmsghdr) char control[64] = {};
  while (!bytes.empty()) {
    iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (fd >= 0) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(sizeof(int));
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    }
#if defined(MSG_NOSIGNAL)
    const ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL);
#else
    const ssize_t sent = sendmsg(socket, &message, 0);
#endif
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      // A long line for a shell, to a holder that reads.
      pollfd waited{socket, POLLOUT, 0};
      if (poll(&waited, 1, 1000) <= 0) return false;
      continue;
    }
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
    fd = -1;
  }
  return true;
}

ssize_t ReceiveWithFd(int socket, std::string& bytes, UniqueFd& fd) {
  char buffer[64 << 10];
  alignas(cmsghdr) char control[256] = {};
  iovec part{buffer, sizeof(buffer)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
#if defined(MSG_CMSG_CLOEXEC)
  const ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
#else
  const ssize_t got = recvmsg(socket, &message, 0);
#endif
  if (got <= 0) return got;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      fd.reset(received);  // one is enough; others are closed
      fcntl(received, F_SETFD, FD_CLOEXEC);
    }
  }
  bytes.append(buffer, static_cast<size_t>(got));
  return got;
}

bool IsPeerOurs(int socket) {
#if defined(__linux__)
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
#else
  uid_t user = 0;
  gid_t group = 0;
  return getpeereid(socket, &user, &group) == 0 && user == geteuid();
#endif
}

absl::StatusOr<UniqueFd> ConnectToHolder(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "make a socket");
  MakePrivate(fd.get());
  const sockaddr_un address = AddressOf(path);
  // With a full queue this fails at once instead of waiting for a holder that hangs.
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return absl::NotFoundError(absl::StrCat("connect to ", path, ": ", std::strerror(errno)));
  }
  if (!IsPeerOurs(fd.get())) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": another user listens there"));
  }
  return fd;
}

absl::StatusOr<UniqueFd> ListenAsHolder(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "make a socket");
  MakePrivate(fd.get());
  unlink(path.c_str());
  const sockaddr_un address = AddressOf(path);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      chmod(path.c_str(), 0700) != 0 || listen(fd.get(), 128) != 0) {
    return ErrnoStatus(errno, absl::StrCat("listen at ", path));
  }
  return fd;
}

std::vector<HolderState> ListHolders(const std::string& state_dir) {
  std::vector<HolderState> holders;
  for (const std::string& path : LiveSockets(state_dir)) {
    HolderState holder;
    holder.socket = path;
    const std::optional<std::string> said = AskOnce(path, WarmWord::kState);
    const nlohmann::json json =
        said.has_value() ? nlohmann::json::parse(*said, nullptr, /*allow_exceptions=*/false)
                         : nlohmann::json();
    holder.answers = json.is_object();
    if (holder.answers) {
      holder.node = json.value("node", "");
      holder.pid = json.value("pid", int64_t{0});
      holder.commands = json.value("commands", int64_t{0});
      holder.served = json.value("served", int64_t{0});
      holder.ends_in = absl::Seconds(json.value("ends_in_s", int64_t{0}));
    }
    holders.push_back(std::move(holder));
  }
  return holders;
}

int CloseHolders(const std::string& state_dir, absl::string_view node) {
  int closed = 0;
  for (const HolderState& holder : ListHolders(state_dir)) {
    if (!node.empty() && holder.answers && holder.node != node) continue;
    if (!node.empty() && !holder.answers) continue;
    if (!AskOnce(holder.socket, WarmWord::kLeave).has_value()) EndByForce(holder.socket);
    ++closed;
  }
  return closed;
}

}  // namespace gpuctl
