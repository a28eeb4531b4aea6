// How a run ended.
#ifndef GPUCTL_CLIENT_RUNS_RUN_END_H_
#define GPUCTL_CLIENT_RUNS_RUN_END_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

// Whose code a run's exit code is.
enum class EndSource { kJob, kGpuctl };

// Why a run ended, as far as something is decided by it.
enum class EndCause {
  kNone,       // by itself, or for a reason that only people want to know
  kUser,       // it was told to stop
  kLimit,      // time or cost; LimitOf(reason) names it
  kCannotRun,  // its command could not be executed
  kPreempted,  // its machine was taken away
};

// Recorded once, when it is known.
struct RunEnd {
  // FINISHED or LOST; UNSPECIFIED when it never started.
  gpuctl::v1::JobState state = gpuctl::v1::JOB_STATE_UNSPECIFIED;
  int exit_code = 0;  // what gpuctl exits with for this run
  int job_code = -1;  // the job's own; -1 when it has none
  EndSource source = EndSource::kJob;
  EndCause cause = EndCause::kNone;
  std::string reason;  // for people: "user", "limit:time", an error; "" when it ended by itself
  int64_t ended_ms = 0;
};

// Returns what `reason` of a job's lifecycle line `exited` means.
EndCause CauseOfExit(absl::string_view reason);

// Begins the reason of a run whose machine was taken away, for people: "preempted: outbid".
constexpr char kPreemptedReason[] = "preempted: ";
// True when the machine of the run was taken away, whatever the reason says.
bool IsPreempted(const RunEnd& end);

// The words for them in the list of runs. Those of state and source are also in the JSON of a run,
// where a run that never started has another (docs/json.md).
std::string StateWord(gpuctl::v1::JobState state);  // "JOB_STATE_LOST"; "" when it never started
std::string SourceWord(EndSource source);           // "job", "gpuctl"
std::string CauseWord(EndCause cause);              // "preempted"

// The way back. Words that this build does not know become UNSPECIFIED, kGpuctl and kNone.
gpuctl::v1::JobState StateOfWord(const std::string& word);
EndSource SourceOfWord(absl::string_view word);
EndCause CauseOfWord(absl::string_view word);

// Returns the cause of an end that was recorded by a gpuctl that had no causes: by the words of its
// reason, as that one did.
EndCause CauseOfOldEnd(const RunEnd& end);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RUNS_RUN_END_H_
