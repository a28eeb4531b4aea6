#include "agent/base/guard_start.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/process/process.h"

namespace gpuctl {

absl::Status EnsureGuard(const RootPaths& paths, const std::string& bundle_dir) {
  ASSIGN_OR_RETURN(const bool running, IsLocked(paths.guard_lock));
  if (running) return absl::OkStatus();
  // `guard --detach` starts the real guard and exits at once, so that the caller need not wait for
  // the guard or reap it later.
  UniqueFd log(file_ops::Open(paths.log, O_WRONLY | O_CREAT | O_APPEND, 0600));
  SpawnOptions options;
  const std::string current = JoinPath(paths.bin_current, "gpuctl-agent");
  const bool has_current = access(current.c_str(), X_OK) == 0;
  options.argv = {has_current ? current : JoinPath(bundle_dir, "gpuctl-agent"), "guard", "--root",
                  paths.root, "--detach"};
  options.stderr_fd = log.get();
  options.new_session = true;
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(options));
  int status = 0;
  waitpid(pid, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return absl::InternalError("start guard: it ended at once; see node/agent.log");
  }
  return absl::OkStatus();
}

}  // namespace gpuctl
