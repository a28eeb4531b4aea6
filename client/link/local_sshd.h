// The sshd of the `local` provider: gpuctl's own, for one connection, on a socketpair. It uses no
// port and no system configuration, and keys made for it. It works as root and as an ordinary user.
#ifndef GPUCTL_CLIENT_LINK_LOCAL_SSHD_H_
#define GPUCTL_CLIENT_LINK_LOCAL_SSHD_H_

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

struct LocalSshd {
  std::string config_path;    // sshd_config
  std::string identity_path;  // the private key that may log in
  std::string host_key_path;
  std::string log_path;  // sshd's stderr
};

// Writes keys and configuration into `dir` unless they are there. FAILED_PRECONDITION when sshd is
// not installed.
absl::StatusOr<LocalSshd> PrepareLocalSshd(const std::string& dir);

// Starts `sshd -i` and returns the client's end of its socket. That sshd ends with the connection;
// later calls, or the end of this process, reap it.
absl::StatusOr<UniqueFd> DialLocalSshd(const LocalSshd& sshd);

// Registers a child that ends by itself with its connection. A later call, or the end of this
// process, reaps it. Safe from any thread.
void ReapLater(pid_t pid);

// Serves `connection` (any connected stream socket) with a new sshd; for tests that put a network
// in between. Returns sshd's pid, which the caller reaps.
absl::StatusOr<int> ServeLocalSshd(const LocalSshd& sshd, const UniqueFd& connection);

// Returns the absolute path of sshd (sshd demands one), or "".
std::string FindSshd();

// Returns the name of this process's user, as sshd needs it.
std::string CurrentUser();

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LINK_LOCAL_SSHD_H_
