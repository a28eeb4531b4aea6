#include "client/link/ssh_session.h"

#include <fcntl.h>
#include <libssh/callbacks.h>
#include <libssh/libssh.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

// Ciphers in order of preference. AES-GCM uses the CPU's own instructions: about 1.6 times as fast
// as ChaCha20 here.
constexpr char kCiphers[] =
    "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes256-ctr,"
    "aes128-ctr";
constexpr size_t kMaxOut = 1 << 20;
constexpr size_t kMaxErr = 64 << 10;

// Turns off delayed acknowledgements. sshd turns on NODELAY only when a session starts; before that
// each reply would wait 40 ms for an acknowledgement. Linux forgets this option, so it is set
// before every wait.
void QuickAck(int fd) {
#if defined(TCP_QUICKACK)
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof(on));
#else
  (void)fd;
#endif
}

int TimeoutMs(absl::Duration left) {
  return static_cast<int>(
      std::max<int64_t>(0, absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)))));
}

std::vector<std::string> DefaultIdentities() {
  std::vector<std::string> files;
  const char* home = getenv("HOME");
  if (home == nullptr) return files;
  for (const char* name : {"id_ed25519", "id_ecdsa", "id_rsa"}) {
    const std::string path = absl::StrCat(home, "/.ssh/", name);
    if (PathExists(path)) files.push_back(path);
  }
  return files;
}

bool IsSameFile(int a, int b) {
  struct stat one {
  }, other{};
  return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SshSession>> SshSession::Open(UniqueFd socket,
                                                             const SshOptions& options) {
  std::unique_ptr<SshSession> session(new SshSession);
  session->timeout_ = options.timeout;
  session->host_ = options.host;
  session->session_ = ssh_new();
  session->twin_.reset(fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
  session->socket_ = socket.get();
  socket_t fd = socket.release();
  const bool off = false;
  const int nodelay = 1;
  ssh_session handle = session->session_;
  ssh_options_set(handle, SSH_OPTIONS_HOST, options.host.empty() ? "node" : options.host.c_str());
  ssh_options_set(handle, SSH_OPTIONS_USER, options.user.c_str());
  ssh_options_set(handle, SSH_OPTIONS_FD, &fd);
  ssh_options_set(handle, SSH_OPTIONS_PROCESS_CONFIG, &off);
  ssh_options_set(handle, SSH_OPTIONS_NODELAY, &nodelay);
  ssh_options_set(handle, SSH_OPTIONS_CIPHERS_C_S, kCiphers);
  ssh_options_set(handle, SSH_OPTIONS_CIPHERS_S_C, kCiphers);
  if (options.compressed) {
    // OpenSSH's own method begins after the login, so that nobody unknown reaches zlib.
    ssh_options_set(handle, SSH_OPTIONS_COMPRESSION_C_S, "zlib@openssh.com,none");
  }
  if (!options.host_key_algorithms.empty()) {
    ssh_options_set(handle, SSH_OPTIONS_HOSTKEYS, options.host_key_algorithms.c_str());
  }
  RETURN_IF_ERROR(session->Connect(options));
  RETURN_IF_ERROR(session->Authenticate(options));
  return session;
}

SshSession::~SshSession() {
  if (session_ == nullptr) return;
  // No disconnect message: sending it could block on a dead network, and the server understands
  // EOF.
  ssh_silent_disconnect(session_);
  ssh_free(session_);
  // libssh 0.10 closes the socket, 0.12 does not.
  if (twin_.valid() && IsSameFile(socket_, twin_.get())) close(socket_);
}

absl::StatusOr<int> SshSession::Drive(const char* what, const std::function<int()>& step) {
  Clock& clock = Clock::Real();
  const absl::Duration deadline = clock.SinceBoot() + timeout_;
  for (;;) {
    const int result = step();
    if (result == SSH_ERROR) {
      return absl::UnavailableError(
          absl::StrCat(what, ", to ", host_, ": ", ssh_get_error(session_)));
    }
    if (result != SSH_AGAIN) return result;
    const absl::Duration left = deadline - clock.SinceBoot();
    if (left <= absl::ZeroDuration()) {
      return absl::UnavailableError(absl::StrCat(what, ", to ", host_, ": no answer within ",
                                                 absl::FormatDuration(timeout_)));
    }
    QuickAck(socket_);
    const int flags = ssh_get_poll_flags(session_);
    pollfd waited{socket_,
                  static_cast<short>(POLLIN | ((flags & SSH_WRITE_PENDING) != 0 ? POLLOUT : 0)), 0};
    poll(&waited, 1, TimeoutMs(left));
  }
}

absl::Status SshSession::Connect(const SshOptions& options) {
  ssh_set_blocking(session_, 0);
  RETURN_IF_ERROR(Drive("connect by ssh", [this] { return ssh_connect(session_); }).status());
  // libssh makes the descriptor blocking again. Then a dead network with a full send buffer would
  // block the pump in send().
  fcntl(socket_, F_SETFL, fcntl(socket_, F_GETFL) | O_NONBLOCK);
  ssh_key key = nullptr;
  if (ssh_get_server_publickey(session_, &key) != SSH_OK) {
    return absl::UnavailableError(absl::StrCat("read host key of ", host_));
  }
  const std::unique_ptr<ssh_key_struct, void (*)(ssh_key_struct*)> owner(key, ssh_key_free);
  unsigned char* hash = nullptr;
  size_t size = 0;
  const int hashed = ssh_get_publickey_hash(key, SSH_PUBLICKEY_HASH_SHA256, &hash, &size);
  if (hashed != SSH_OK) return absl::UnavailableError(absl::StrCat("hash host key of ", host_));
  char* fingerprint = ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, size);
  const std::string shown = fingerprint != nullptr ? fingerprint : "";
  ssh_string_free_char(fingerprint);
  ssh_clean_pubkey_hash(&hash);
  if (options.check_host_key) RETURN_IF_ERROR(options.check_host_key(shown));
  char* base64 = nullptr;
  if (options.on_host_key && ssh_pki_export_pubkey_base64(key, &base64) == SSH_OK) {
    options.on_host_key(absl::StrCat(ssh_key_type_to_char(ssh_key_type(key)), " ", base64));
    ssh_string_free_char(base64);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> SshSession::TryKeyFile(const std::string& path, std::string& tried) {
  ssh_key key = nullptr;
  const int imported = ssh_pki_import_privkey_file(path.c_str(), "", nullptr, nullptr, &key);
  if (imported != SSH_OK) {
    absl::StrAppend(&tried, tried.empty() ? "" : ", ", path,
                    imported == SSH_EOF ? " (cannot be read)"
                                        : " (not a private key, or protected by a passphrase: add "
                                          "it to the ssh agent)");
    return false;
  }
  const absl::StatusOr<int> result = Drive("log in with key", [&] {
    const int auth = ssh_userauth_publickey(session_, nullptr, key);
    if (auth == SSH_AUTH_AGAIN) return static_cast<int>(SSH_AGAIN);
    // A refused key is not an error of the connection.
    return auth == SSH_AUTH_ERROR && ssh_is_connected(session_) == 0 ? static_cast<int>(SSH_ERROR)
                                                                     : (auth == SSH_AUTH_SUCCESS);
  });
  ssh_key_free(key);
  if (!result.ok()) return result.status();
  if (*result == 0) absl::StrAppend(&tried, tried.empty() ? "" : ", ", path);
  return *result == 1;
}

absl::StatusOr<bool> SshSession::TryAgent(std::string& tried) {
  if (getenv("SSH_AUTH_SOCK") == nullptr) return false;
  const absl::StatusOr<int> result = Drive("log in with the ssh agent", [&] {
    const int auth = ssh_userauth_agent(session_, nullptr);
    if (auth == SSH_AUTH_AGAIN) return static_cast<int>(SSH_AGAIN);
    return auth == SSH_AUTH_ERROR && ssh_is_connected(session_) == 0 ? static_cast<int>(SSH_ERROR)
                                                                     : (auth == SSH_AUTH_SUCCESS);
  });
  if (!result.ok()) return result.status();
  if (*result == 0) absl::StrAppend(&tried, tried.empty() ? "" : ", ", "the ssh agent's keys");
  return *result == 1;
}

absl::Status SshSession::Authenticate(const SshOptions& options) {
  std::string tried;
  // The server usually accepts the first key, so offer it at once. To ask for its methods, or
  // whether it would accept a key, costs a round trip each.
  std::vector<std::string> files = options.identity_files;
  if (files.empty()) {
    if (options.use_agent) {
      ASSIGN_OR_RETURN(const bool accepted, TryAgent(tried));
      if (accepted) return absl::OkStatus();
    }
    files = DefaultIdentities();
  }
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(const bool accepted, TryKeyFile(file, tried));
    if (accepted) return absl::OkStatus();
  }
  if (!options.identity_files.empty() && options.use_agent) {
    ASSIGN_OR_RETURN(const bool accepted, TryAgent(tried));
    if (accepted) return absl::OkStatus();
  }
  return absl::UnauthenticatedError(absl::StrCat("log in as ", options.user, " on ", host_,
                                                 ": no key was accepted; tried ",
                                                 tried.empty() ? "none, there are none" : tried));
}

int SignalNumber(const char* name) {
  static constexpr struct {
    const char* name;
    int number;
  } kSignals[] = {{"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT}, {"ILL", SIGILL},
                  {"TRAP", SIGTRAP}, {"ABRT", SIGABRT}, {"FPE", SIGFPE},   {"KILL", SIGKILL},
                  {"SEGV", SIGSEGV}, {"PIPE", SIGPIPE}, {"ALRM", SIGALRM}, {"TERM", SIGTERM},
                  {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"BUS", SIGBUS}};
  for (const auto& signal : kSignals) {
    if (name != nullptr && std::strcmp(signal.name, name) == 0) return signal.number;
  }
  return SIGKILL;
}

void SshSession::OnExitSignal(ssh_session_struct*, ssh_channel_struct* channel, const char* signal,
                              int, const char*, const char*, void* newest) {
  Newest& command = *static_cast<Newest*>(newest);
  if (command.channel == channel) command.exit_signal = SignalNumber(signal);
}

absl::StatusOr<ssh_channel_struct*> SshSession::Exec(const std::string& command) {
  ssh_channel channel = ssh_channel_new(session_);
  if (channel == nullptr) return absl::UnavailableError("open channel: out of memory");
  const absl::Duration asked = Clock::Real().SinceBoot();
  RETURN_IF_ERROR(
      Drive("open channel", [&] { return ssh_channel_open_session(channel); }).status());
  // The server answers this request at once.
  round_trip_ = Clock::Real().SinceBoot() - asked;
  // Set before the command runs: its death may come in one segment with the answer to the request,
  // and libssh keeps exit statuses, but no signals.
  newest_ = {channel, 0};
  if (callbacks_ == nullptr) {
    callbacks_ = std::make_unique<ssh_channel_callbacks_struct>();
    callbacks_->userdata = &newest_;
    callbacks_->channel_exit_signal_function = OnExitSignal;
    ssh_callbacks_init(callbacks_.get());
  }
  ssh_set_channel_callbacks(channel, callbacks_.get());
  RETURN_IF_ERROR(Drive("run command", [&] {
                    return ssh_channel_request_exec(channel, command.c_str());
                  }).status());
  return channel;
}

bool SshSession::IsOpenSsh() const {
  const char* banner = ssh_get_serverbanner(session_);
  return banner != nullptr && absl::StrContains(banner, "OpenSSH_");
}

absl::StatusOr<SshSession::Result> SshSession::RunToEnd(const std::string& command,
                                                        absl::string_view input,
                                                        absl::Duration timeout) {
  ASSIGN_OR_RETURN(ssh_channel channel, Exec(command));
  Clock& clock = Clock::Real();
  const absl::Duration deadline = clock.SinceBoot() + timeout;
  Result result;
  bool eof_sent = false;
  std::vector<char> buffer(1 << 18);
  auto drain = [&](bool is_stderr, std::string& into, size_t limit) {
    int got = 0;
    while ((got = ssh_channel_read_nonblocking(
                channel, buffer.data(), static_cast<uint32_t>(buffer.size()), is_stderr)) > 0) {
      if (into.size() < limit) into.append(buffer.data(), static_cast<size_t>(got));
    }
  };
  for (;;) {
    if (!input.empty() && ssh_channel_window_size(channel) > 0) {
      const uint32_t size = static_cast<uint32_t>(std::min<size_t>(input.size(), 1 << 18));
      const int written = ssh_channel_write(channel, input.data(), size);
      if (written == SSH_ERROR) {
        // The command has ended without reading all; its exit code is still to come.
        input = "";
        eof_sent = true;
      } else {
        input.remove_prefix(static_cast<size_t>(written));
        if (written > 0) continue;
      }
    }
    if (input.empty() && !eof_sent) {
      ssh_channel_send_eof(channel);
      eof_sent = true;
    }
    const auto drain_both = [&] {
      drain(false, result.out, kMaxOut);
      drain(true, result.err, kMaxErr);
    };
    drain_both();
    const ExitStatus status = ExitStatusOf(channel);
    // After EOF and a status libssh reads no close that comes in a later segment.
    if ((status.known && ssh_channel_is_eof(channel) != 0) || ssh_channel_is_closed(channel) != 0 ||
        !ssh_is_connected(session_)) {
      drain_both();
      result.exit_code = exit_signal() != 0 ? 128 + exit_signal() : status.code;
      break;
    }
    const absl::Duration left = deadline - clock.SinceBoot();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(absl::StrCat(
          "run command on ", host_, ": not done within ", absl::FormatDuration(timeout)));
    }
    pollfd waited{socket_, POLLIN, 0};
    if ((ssh_get_poll_flags(session_) & SSH_WRITE_PENDING) != 0) waited.events |= POLLOUT;
    poll(&waited, 1, std::min(TimeoutMs(left), 50));
  }
  ssh_channel_free(channel);
  if (!ssh_is_connected(session_) && result.exit_code < 0) {
    return absl::UnavailableError(absl::StrCat("run command on ", host_, ": the connection broke"));
  }
  return result;
}

ExitStatus ExitStatusOf(ssh_channel_struct* channel) {
  ExitStatus status;
#if LIBSSH_VERSION_INT >= SSH_VERSION_INT(0, 11, 0)
  uint32_t code = 0;
  if (ssh_channel_get_exit_state(channel, &code, nullptr, nullptr) == SSH_OK) {
    status = {true, static_cast<int>(code)};
  }
#else
  status.code = ssh_channel_get_exit_status(channel);
  status.known = status.code != -1;
#endif
  return status;
}

absl::StatusOr<UniqueFd> ConnectTcp(const std::string& host, int port, absl::Duration timeout) {
  const std::string shown = absl::StrCat("connect to ", host, " port ", port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int looked_up = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (looked_up != 0) {
    return absl::UnavailableError(absl::StrCat(shown, ": ", gai_strerror(looked_up)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  Clock& clock = Clock::Real();
  const absl::Duration deadline = clock.SinceBoot() + timeout;
  absl::Status last = absl::UnavailableError(absl::StrCat(shown, ": no address"));
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    UniqueFd fd(socket(address->ai_family, SOCK_STREAM, 0));
    if (!fd.valid()) continue;
    fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
    fcntl(fd.get(), F_SETFL, O_NONBLOCK);
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    int error = 0;
    if (connect(fd.get(), address->ai_addr, address->ai_addrlen) != 0) {
      error = errno;
      if (error == EINPROGRESS) {
        pollfd waited{fd.get(), POLLOUT, 0};
        error = ETIMEDOUT;
        socklen_t size = sizeof(error);
        if (poll(&waited, 1, TimeoutMs(deadline - clock.SinceBoot())) > 0) {
          getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
        }
      }
    }
    if (error == 0) return fd;
    last = absl::UnavailableError(ErrnoStatus(error, shown).message());
  }
  return last;
}

absl::StatusOr<std::string> EnsureKeyPair(const std::string& path, absl::string_view comment) {
  const std::string public_path = absl::StrCat(path, ".pub");
  if (PathExists(path)) {
    ASSIGN_OR_RETURN(const std::string line, ReadFileToString(public_path, 16 << 10));
    return std::string(absl::StripTrailingAsciiWhitespace(line));
  }
  RETURN_IF_ERROR(MakeDirectories(DirName(path)));
  // Two processes that make the pair at once must not mix their halves.
  ASSIGN_OR_RETURN(const UniqueFd lock, WaitForLock(absl::StrCat(path, ".lock")));
  if (PathExists(path)) {
    ASSIGN_OR_RETURN(const std::string line, ReadFileToString(public_path, 16 << 10));
    return std::string(absl::StripTrailingAsciiWhitespace(line));
  }
  ssh_key key = nullptr;
  if (ssh_pki_generate(SSH_KEYTYPE_ED25519, 0, &key) != SSH_OK) {
    return absl::InternalError(absl::StrCat("make ssh key ", path));
  }
  const std::unique_ptr<ssh_key_struct, void (*)(ssh_key_struct*)> owner(key, ssh_key_free);
  // Under the lock one name is enough. What a killed process left there is overwritten.
  const std::string temporary = absl::StrCat(path, ".tmp");
  char* base64 = nullptr;
  if (ssh_pki_export_privkey_file(key, nullptr, nullptr, nullptr, temporary.c_str()) != SSH_OK ||
      chmod(temporary.c_str(), 0600) != 0 || ssh_pki_export_pubkey_base64(key, &base64) != SSH_OK) {
    unlink(temporary.c_str());
    return absl::InternalError(absl::StrCat("write ssh key ", path));
  }
  const std::string line = absl::StrCat("ssh-ed25519 ", base64, " ", comment);
  ssh_string_free_char(base64);
  // Write the public half first: when the private one exists, both can be read.
  RETURN_IF_ERROR(WriteFileAtomic(public_path, absl::StrCat(line, "\n"), 0644));
  if (file_ops::Rename(temporary, path) != 0) {
    return ErrnoStatus(errno, absl::StrCat("write ssh key ", path));
  }
  return line;
}

}  // namespace gpuctl
