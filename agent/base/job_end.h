// Ending a job that has no shim: the server writes the lines instead, under the shim's lock.
#ifndef GPUCTL_AGENT_BASE_JOB_END_H_
#define GPUCTL_AGENT_BASE_JOB_END_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/job/job_layout.h"
#include "common/job/lifecycle.h"

namespace gpuctl {

// Appends `end` (exited or lost) with the streams' sizes, and a retry line if the spec's policy
// wants one, in one durable write. Without a time of its own the end is now. The caller holds the
// job's lock.
absl::Status AppendEnd(const JobPaths& job, const gpuctl::v1::JobSpec& spec, LifecycleEvent end,
                       Clock& clock);

// Appends the line that asks for attempt `attempt`, after `delay_ms`. The caller holds the job's
// lock.
absl::Status AppendRetry(const JobPaths& job, const gpuctl::v1::JobSpec& spec, int attempt,
                         int64_t delay_ms, Clock& clock);

// Ends a job that is pending or waits to retry, as if its shim had been told to stop. ABORTED when
// a shim has taken the job meanwhile: ask that shim.
absl::Status EndUnstarted(const JobPaths& job, absl::string_view reason, Clock& clock);

// Ends a job that is pending or waits to retry and whose shim cannot start, with the last thing
// that its shims said.
absl::Status EndWithoutShim(const JobPaths& job, Clock& clock);

// Writes one line to the job's control FIFO. FAILED_PRECONDITION when no shim listens.
absl::Status SendControl(const JobPaths& job, absl::string_view line);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_JOB_END_H_
