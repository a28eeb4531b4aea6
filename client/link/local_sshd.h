// The `local` provider's way in: an sshd of our own for one connection, on a socketpair. No port,
// no system configuration, keys made for it; works as root and as an ordinary user.
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

// Starts `sshd -i` and returns the client's end of its socket. The process ends with the connection
// and is reaped by later calls or by our end.
absl::StatusOr<UniqueFd> DialLocalSshd(const LocalSshd& sshd);

// For a child that ends by itself with its connection: it is reaped by a later call, or by our end.
// Any thread.
void ReapLater(pid_t pid);

// Serves `connection` (any connected stream socket) with a new sshd; for tests that put a network
// in between. Returns sshd's pid, which the caller reaps.
absl::StatusOr<int> ServeLocalSshd(const LocalSshd& sshd, const UniqueFd& connection);

// The absolute path of sshd (it insists on one), or "".
std::string FindSshd();

// The name of the user we are, as sshd wants it.
std::string CurrentUser();

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LINK_LOCAL_SSHD_H_
