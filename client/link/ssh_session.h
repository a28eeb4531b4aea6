// One SSH connection: connected, host key checked, authenticated. A small class around libssh.
#ifndef GPUCTL_CLIENT_LINK_SSH_SESSION_H_
#define GPUCTL_CLIENT_LINK_SSH_SESSION_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/unique_fd.h"

struct ssh_session_struct;
struct ssh_channel_struct;
struct ssh_channel_callbacks_struct;

namespace gpuctl {

// How a channel's command ended, as far as that has come.
struct ExitStatus {
  bool known = false;  // also when a signal ended it
  int code = -1;       // the status as it was sent; -1 when none was
};
// Handles packets until it is known, without waiting for more.
ExitStatus ExitStatusOf(ssh_channel_struct* channel);
// Returns the number of a signal that a server names without SIG; SIGKILL for one that this system
// does not know.
int SignalNumber(const char* name);

struct SshOptions {
  std::string user;
  std::string host;  // for messages only; the connection is made by the caller
  // Private key files to offer, in order. Empty: the SSH agent, then the usual files of ~/.ssh.
  std::vector<std::string> identity_files;
  // False: no key of the SSH agent is offered.
  bool use_agent = true;
  // Algorithms of host keys in the wanted order, with commas; "" for libssh's own order.
  std::string host_key_algorithms;
  // Checks the server's key, given as "SHA256:<base64>". An error ends the connection.
  std::function<absl::Status(absl::string_view fingerprint)> check_host_key;
  // Gets the key that passed the check, as known_hosts files have it: "ssh-ed25519 <base64>".
  std::function<void(const std::string& key)> on_host_key;
  absl::Duration timeout = absl::Seconds(15);
  // True: what is sent is compressed, if the server can do that.
  bool compressed = false;
};

// For one thread at a time. Uses libssh without blocking: every step has the deadline of `timeout`.
class SshSession {
 public:
  // Takes over a connected stream socket (TCP, or one end of a socketpair to `sshd -i`).
  // UNAVAILABLE: the server is not there or does not answer. UNAUTHENTICATED: it accepted no key.
  // Or the error of check_host_key.
  static absl::StatusOr<std::unique_ptr<SshSession>> Open(UniqueFd socket,
                                                          const SshOptions& options);
  ~SshSession();
  SshSession(const SshSession&) = delete;
  SshSession& operator=(const SshSession&) = delete;

  // Opens a channel that runs `command`; the caller pumps it (pump.h). The session owns it.
  absl::StatusOr<ssh_channel_struct*> Exec(const std::string& command);

  struct Result {
    int exit_code = 0;
    std::string out;  // at most 1 MiB
    std::string err;  // at most 64 KiB
  };
  // Runs `command` with `input` as its stdin to its end, within `timeout`.
  absl::StatusOr<Result> RunToEnd(const std::string& command, absl::string_view input,
                                  absl::Duration timeout);

  // True when the server says that it is OpenSSH's.
  bool IsOpenSsh() const;
  // Returns the time that a packet takes there and back; known after the first Exec.
  absl::Duration round_trip() const { return round_trip_; }
  // Returns the signal that ended the newest command of Exec; 0 when none did. A signal that this
  // system does not know counts as SIGKILL.
  int exit_signal() const { return newest_.exit_signal; }

  ssh_session_struct* handle() { return session_; }
  int socket() const { return socket_; }

 private:
  SshSession() = default;
  absl::Status Connect(const SshOptions& options);
  absl::Status Authenticate(const SshOptions& options);
  absl::StatusOr<bool> TryKeyFile(const std::string& path, std::string& tried);
  absl::StatusOr<bool> TryAgent(std::string& tried);
  // Repeats `step` while it returns SSH_AGAIN; waits for the socket between the calls.
  absl::StatusOr<int> Drive(const char* what, const std::function<int()>& step);

  ssh_session_struct* session_ = nullptr;
  int socket_ = -1;
  // Of the same socket: while it is open, nothing else has that identity, and it tells whether
  // `socket_` is still that.
  UniqueFd twin_;
  absl::Duration timeout_;
  absl::Duration round_trip_;
  // The newest command.
  struct Newest {
    ssh_channel_struct* channel = nullptr;
    int exit_signal = 0;
  };
  static void OnExitSignal(ssh_session_struct*, ssh_channel_struct* channel, const char* signal,
                           int, const char*, const char*, void* newest);

  Newest newest_;
  std::unique_ptr<ssh_channel_callbacks_struct> callbacks_;  // of every channel
  std::string host_;
};

// Connects to host:port over TCP (IPv4 or IPv6), with NODELAY set. UNAVAILABLE names the cause.
absl::StatusOr<UniqueFd> ConnectTcp(const std::string& host, int port, absl::Duration timeout);

// Makes an ed25519 key pair at `path` (0600) and `path`.pub unless it is there. Returns the public
// key line.
absl::StatusOr<std::string> EnsureKeyPair(const std::string& path, absl::string_view comment);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LINK_SSH_SESSION_H_
