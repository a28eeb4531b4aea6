#include "agent/base/guard_start.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/base/held_root.h"
#include "agent/base/platform.h"
#include "agent/base/say.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/process/process.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kHolderWithin = absl::Seconds(15);
constexpr absl::Duration kLookEvery = absl::Milliseconds(20);

absl::Status WaitForHolder(const RootPaths& paths, Clock& clock) {
  const absl::Duration deadline = clock.SinceBoot() + kHolderWithin;
  while (LivesBatchScript(paths) && clock.SinceBoot() < deadline) {
    clock.SleepFor(kLookEvery);
    ASSIGN_OR_RETURN(const bool running, IsLocked(paths.guard_lock));
    if (running) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat("the allocation's holder does not run: ",
                                                    LivesBatchScript(paths)
                                                        ? "its batch script has not started it"
                                                        : "the allocation has ended"));
}

}  // namespace

absl::Status EnsureGuard(const RootPaths& paths, const std::string& bundle_dir) {
  ASSIGN_OR_RETURN(const bool running, IsLocked(paths.guard_lock));
  if (running) return absl::OkStatus();
  if (IsHeldRoot(paths)) return WaitForHolder(paths, Clock::Real());
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

void TendGuard(const RootPaths& paths, const std::string& bundle_dir) {
  const absl::StatusOr<bool> running = IsLocked(paths.guard_lock);
  if (!PathExists(paths.guard_lock) || !running.ok() || *running) return;
  // The guard must not become a part of the job, so for this moment orphans go to init, not to us.
  ResignSubreaper();
  const absl::Status status = EnsureGuard(paths, bundle_dir);
  BecomeSubreaper();
  Say(absl::StrCat("the guard was gone: ", status.ok() ? "started one" : status.message()));
}

}  // namespace gpuctl
