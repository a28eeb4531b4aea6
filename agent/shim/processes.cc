#include "agent/shim/processes.h"

#include <signal.h>

#include "absl/strings/str_cat.h"

namespace gpuctl {

absl::Status SweepJob(absl::string_view job_id, absl::Duration patience, Clock& clock) {
  constexpr absl::Duration kInterval = absl::Milliseconds(2);
  const absl::Duration end = clock.SinceBoot() + patience;
  while (true) {
    // Looked for anew each time: a process may have forked between the look and the signal.
    const std::vector<ProcessId> left = MarkedProcesses(job_id);
    if (left.empty()) return absl::OkStatus();
    for (const ProcessId& process : left) SendSignal(process, SIGKILL);
    if (clock.SinceBoot() >= end) {
      return absl::DeadlineExceededError(absl::StrCat("sweep job ", job_id, ": process ",
                                                      left.front().pid, " does not die"));
    }
    clock.SleepFor(kInterval);
  }
}

}  // namespace gpuctl
