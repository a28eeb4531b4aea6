// When the processes that wrote a job's checkpoints ended, and whether they ended by themselves.
#ifndef GPUCTL_AGENT_RESULTS_WRITERS_END_H_
#define GPUCTL_AGENT_RESULTS_WRITERS_END_H_

#include "absl/time/time.h"
#include "common/job/lifecycle.h"

namespace gpuctl {

struct WritersEnd {
  // The end of all writers. The infinite future: they ended by themselves, so all is finished.
  absl::Time ended = absl::InfiniteFuture();
  // Whoever wrote after this moment outlived SIGTERM, and ended by itself.
  absl::Time outlived = absl::InfiniteFuture();
};

// Judges the last attempt of a job that is over. A job ended by itself when its exit code is 0. So
// it did when it exited, with any code, after SIGTERM and before its grace was over: SIGTERM means
// save and exit. A command that SIGTERM ended, such as a shell around the script, may have left
// processes that saved; `outlived` tells their files from those that SIGTERM cut short.
WritersEnd WritersEndOf(const Lifecycle& lifecycle, absl::Duration grace);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_RESULTS_WRITERS_END_H_
