// The machine on which a cluster's users log in and run its commands.
#ifndef GPUCTL_PROVISIONING_SLURM_LOGIN_NODE_H_
#define GPUCTL_PROVISIONING_SLURM_LOGIN_NODE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "provisioning/market/types.h"

namespace gpuctl {

struct CommandAnswer {
  int exit_code = 0;  // 128+n for a signal
  std::string out;
  std::string err;
};

// For one thread at a time.
class LoginNode {
 public:
  virtual ~LoginNode() = default;
  // Returns the address that reaches it, as the user named it.
  virtual const SshAddress& address() const = 0;
  // Runs a line of a POSIX shell there, with `input` as its stdin, to its end. UNAVAILABLE: the
  // command was not started. UNKNOWN: it may have run, and its end is not known. UNAUTHENTICATED,
  // PERMISSION_DENIED: the login node refuses the user, or is another machine.
  virtual absl::StatusOr<CommandAnswer> Run(const std::string& command,
                                            absl::string_view input) = 0;
};

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_SLURM_LOGIN_NODE_H_
