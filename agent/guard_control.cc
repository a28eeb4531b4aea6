#include "agent/guard_control.h"

#include <fcntl.h>
#include <stdio.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "agent/base/change_notifier.h"
#include "agent/jobs/job_table.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kDownWithin = absl::Seconds(15);

absl::Status Shutdown(const std::string& root) {
  if (!IsDirectory(root)) return absl::OkStatus();
  const RootPaths paths(root);
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(paths.jobs));
  for (const std::string& name : names) {
    absl::StatusOr<gpuctl::v1::Job> job = DeriveJob(paths.Job(name));
    if (job.ok() && (job->state() == gpuctl::v1::JOB_STATE_RUNNING ||
                     job->state() == gpuctl::v1::JOB_STATE_STARTING ||
                     job->state() == gpuctl::v1::JOB_STATE_FINISHING)) {
      return absl::FailedPreconditionError(absl::StrCat("shut down: job ", name, " is running"));
    }
  }
  const absl::Status sent = SendGuardCommand(paths, "exit");
  if (!sent.ok() && !absl::IsFailedPrecondition(sent)) return sent;
  Clock& clock = Clock::Real();
  const absl::Duration deadline = clock.SinceBoot() + kDownWithin;
  ChangeNotifier notifier;
  while (clock.SinceBoot() < deadline) {
    ASSIGN_OR_RETURN(const bool guard, IsLocked(paths.guard_lock));
    ASSIGN_OR_RETURN(const bool server, IsLocked(paths.server_lock));
    if (!guard && !server) return absl::OkStatus();
    notifier.Wait(absl::Milliseconds(10));
  }
  return absl::DeadlineExceededError("shut down: guard or server did not end");
}

}  // namespace

absl::Status SendGuardCommand(const RootPaths& paths, absl::string_view command) {
  UniqueFd fifo(file_ops::Open(paths.guard_control, O_WRONLY | O_NONBLOCK));
  if (!fifo.valid()) {
    if (errno == ENXIO || errno == ENOENT) {
      return absl::FailedPreconditionError("reach guard: it does not listen");
    }
    return ErrnoStatus(errno, absl::StrCat("reach guard through ", paths.guard_control));
  }
  return WriteAll(fifo.get(), absl::StrCat(command, "\n"), paths.guard_control);
}

int RunShutdown(const std::string& root) {
  const absl::Status status = Shutdown(root);
  if (status.ok()) return 0;
  fprintf(stderr, "gpuctl-agent: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace gpuctl
