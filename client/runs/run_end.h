// The end of a run.
#ifndef GPUCTL_CLIENT_RUNS_RUN_END_H_
#define GPUCTL_CLIENT_RUNS_RUN_END_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

// The owner of a run's exit code.
enum class EndSource { kJob, kGpuctl };

// The cause of a run's end, for decisions.
enum class EndCause {
  kNone,       // by itself, or for a reason that only people need
  kUser,       // somebody stopped it
  kLimit,      // time or cost; LimitOf(reason) names it
  kAlert,      // a condition of its own: stop_if, plateau
  kCannotRun,  // its command could not be executed
  kPreempted,  // the market took its machine away
  kSetup,      // its setup failed
};

// A run's end, recorded once, when it is known.
struct RunEnd {
  // FINISHED or LOST; UNSPECIFIED when it never started.
  gpuctl::v1::JobState state = gpuctl::v1::JOB_STATE_UNSPECIFIED;
  int exit_code = 0;  // gpuctl's exit code for this run
  int job_code = -1;  // the job's own; -1 when it has none
  EndSource source = EndSource::kJob;
  EndCause cause = EndCause::kNone;
  std::string reason;  // for people: "user", "limit:time", an error; "" when it ended by itself
  int64_t ended_ms = 0;
};

// Returns the cause that `reason` of a job's lifecycle line `exited` means.
EndCause CauseOfExit(absl::string_view reason);

// Beginning of the reason, for people, when the machine was taken away: "preempted: outbid".
constexpr char kPreemptedReason[] = "preempted: ";
// Beginning of the reason when the scheduler of a cluster ended the run's allocation; its own words
// follow: "Slurm: TIMEOUT".
constexpr char kSlurmReason[] = "Slurm: ";
// True when the machine of the run was taken away, whatever the reason says.
bool IsPreempted(const RunEnd& end);

// Return the words of the list of runs. The JSON of a run has the same words for state and source,
// but another for a run that never started (docs/json.md).
std::string StateWord(gpuctl::v1::JobState state);  // "JOB_STATE_LOST"; "" when it never started
std::string SourceWord(EndSource source);           // "job", "gpuctl"
std::string CauseWord(EndCause cause);              // "preempted"

// Parse those words. Words that this build does not know become UNSPECIFIED, kGpuctl and kNone.
gpuctl::v1::JobState StateOfWord(const std::string& word);
EndSource SourceOfWord(absl::string_view word);
EndCause CauseOfWord(absl::string_view word);

// Returns the cause of an end that a gpuctl without causes recorded. Derives it from the words of
// the reason, as that gpuctl did.
EndCause CauseOfOldEnd(const RunEnd& end);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RUNS_RUN_END_H_
