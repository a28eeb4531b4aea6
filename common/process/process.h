// Starting processes without fork: servers have threads.
#ifndef GPUCTL_COMMON_PROCESS_PROCESS_H_
#define GPUCTL_COMMON_PROCESS_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gpuctl {

struct SpawnOptions {
  std::vector<std::string> argv;  // argv[0] is the path of the program; no PATH look-up
  // Descriptors that become the child's 0, 1, 2; -1 means /dev/null.
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  // In a session of its own: a signal to our group or terminal does not reach it.
  bool new_session = false;
  // Additional "NAME=value" entries; the rest is our own environment.
  std::vector<std::string> env;
};

// posix_spawn. The child inherits no descriptor but the three, as all of ours are O_CLOEXEC; it
// starts with default signal dispositions and an empty mask. The caller reaps the pid.
absl::StatusOr<pid_t> Spawn(const SpawnOptions& options);

// This boot of the machine: /proc/sys/kernel/random/boot_id, or its equivalent; "unknown" where
// there is none.
std::string BootId();

// The absolute path of the running program.
std::string SelfPath(const char* argv0);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_PROCESS_PROCESS_H_
