// Starting processes without fork, because servers have threads.
#ifndef GPUCTL_COMMON_PROCESS_PROCESS_H_
#define GPUCTL_COMMON_PROCESS_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gpuctl {

struct SpawnOptions {
  std::vector<std::string> argv;  // argv[0] is the path of the program; no PATH look-up
  // The descriptors that become the child's 0, 1 and 2; -1 means /dev/null.
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  // True for a session of its own: a signal to our group or terminal does not reach the child.
  bool new_session = false;
  // "NAME=value" entries added to our own environment.
  std::vector<std::string> env;
  // False: `env` is the whole environment.
  bool own_env = true;
};

// Starts a program with posix_spawn. The child inherits only the three descriptors, because all of
// ours are O_CLOEXEC. It starts with default signal dispositions and an empty mask. The caller
// reaps the pid.
absl::StatusOr<pid_t> Spawn(const SpawnOptions& options);

// Returns an id of this boot of the machine: /proc/sys/kernel/random/boot_id, on macOS
// kern.bootsessionuuid; "unknown" where there is none.
std::string BootId();

// Returns the absolute path of the running program.
std::string SelfPath(const char* argv0);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_PROCESS_PROCESS_H_
