// The lines of a job's lifecycle.jsonl, and the conclusions from them.
#ifndef GPUCTL_COMMON_JOB_LIFECYCLE_H_
#define GPUCTL_COMMON_JOB_LIFECYCLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

// The reason of a stop at the node's shutdown (the shim itself got SIGTERM). Retries treat such an
// end as lost, because nobody wanted the job to end.
constexpr char kShutdownReason[] = "shutdown";
// The reason of a `queued` line whose job waits for the values of its secrets, too: only a client
// has them.
constexpr char kSecretsReason[] = "secrets";
// The reason of a `queued` line whose job waits for the start of its node: for its allocation in
// the queue of a cluster's scheduler.
constexpr char kSchedulerReason[] = "scheduler";
// The reason of a stop that the user asked for.
constexpr char kUserReason[] = "user";

// The meaning of the reason in a `stopping` or `exited` line.
enum class StopCause {
  kNone,      // nobody stopped the job
  kUser,      // "user"
  kLimit,     // "limit:time", "limit:cost"; LimitOf names it
  kShutdown,  // "shutdown"
  kAlert,     // "alert:loss is nan"; AlertOf has the condition
  kOther,     // this build does not know the reason
};
StopCause StopCauseOf(absl::string_view reason);
// The phase of an attempt that ended in its setup.
constexpr char kSetupPhase[] = "setup";
// The reason of a `setup_ended` line whose environment was there already.
constexpr char kReusedReason[] = "reused";
// Begins the reason of an end that another member of the job's gang caused.
constexpr char kGangPrefix[] = "gang:";
// Begins the reason of a stop by a condition of the job's own (JobSpec.alerts).
constexpr char kAlertPrefix[] = "alert:";
// Returns the condition; "" for a reason that is none.
absl::string_view AlertOf(absl::string_view reason);
// Returns the name of the limit: "time" for "limit:time", "" for a reason that is not a limit.
absl::string_view LimitOf(absl::string_view reason);

// One line. The event type says which fields it has; the others keep their defaults and are not
// written.
struct LifecycleEvent {
  enum class Type {
    kQueued,     // attempt, ticket, reason: the node's queue has it; no state event
    kStarted,    // attempt, pid, start_time_ticks, boot_id, gpus, processes, detail
    kStopping,   // attempt, reason: SIGTERM was sent
    kLingering,  // attempt, exit_code | signal, not_before_ms: its command has ended so, and what
                 // it left running gets SIGTERM then; no state event
    kExited,     // attempt, exit_code | signal, reason, error, detail; the attempt's last line but
                 // `retry`
    kLost,       // attempt, boot_id, reason: the shim is gone and nobody saw the end
    kRetry,      // attempt (the next one), not_before_ms
    kCut,        // first_offset: output before it was removed or soon will be
    kSetupStarted,  // attempt: `setup` of the spec looks for its environment, or makes it
    kSetupEnded,    // attempt, environment, reason, exit_code | signal, error; with exit_code 0 the
                    // job itself begins
    kPackages,      // attempt, packages: what is installed for it; several lines add up
    kDropped,       // dropped_bytes, dropped_metric_lines: losses since the last such line;
                    // output_size is the place of the missing output
  };
  Type type = Type::kStarted;
  int attempt = 0;
  int64_t ticket = 0;  // the lower one is before the higher one

  int64_t pid = 0;
  int64_t start_time_ticks = 0;  // field 22 of /proc/<pid>/stat
  std::string boot_id;
  // The GPUs that are the attempt's own, as in CUDA_VISIBLE_DEVICES. Absent: it sees all, as
  // attempts of older shims do.
  std::optional<std::vector<std::string>> gpus;
  int exit_code = -1;  // -1: ended by `signal`
  int signal = 0;
  std::string reason;       // "user", "limit:time"; empty when the job ended by itself
  std::string error;        // why the command could not be executed
  std::string phase;        // "setup" when the attempt ended before the job itself began
  std::string environment;  // the first digits of the environment's digest
  std::optional<std::vector<std::string>> packages;  // "NAME==VERSION"
  int64_t not_before_ms = 0;                         // wall time, Unix epoch
  int64_t first_offset = 0;
  int64_t dropped_bytes = 0;         // output lost to a full or broken disk
  int64_t dropped_metric_lines = 0;  // lines lost so, or longer than 64 KiB
  // Sizes of the other streams when the line was written. They join the three streams without
  // clocks.
  int64_t output_size = 0;
  int64_t metrics_size = 0;
  int64_t time_ms = 0;  // wall time, for people
  // JobSpec.processes. When it is not 0, the attempt's lines have marks (common/base/rank_mark.h).
  int processes = 0;
  // Of an end of several processes: whose it is, and its last line. Of a start after the first one:
  // from which checkpoint it goes on.
  std::string detail;
};

// Returns one line of JSON with its newline. Field names are those above; `event` holds the type in
// lower case.
std::string FormatLifecycleEvent(const LifecycleEvent& event);

// Parses one line. INVALID_ARGUMENT for anything that is not a lifecycle line (torn, zero-filled,
// of a newer version).
absl::StatusOr<LifecycleEvent> ParseLifecycleEvent(absl::string_view line);

// A whole lifecycle, in order.
struct Lifecycle {
  std::vector<LifecycleEvent> events;
  int skipped_lines = 0;  // torn or zero-filled lines
};

// Parses complete lines. Ignores a last line without newline: its writer is not done, or died. Ends
// early after kMaxSkippedLines: no shim writes so many lines that cannot be read, and each costs
// time at every look.
constexpr int kMaxSkippedLines = 10'000;
Lifecycle ParseLifecycle(absl::string_view contents);

// Returns the last started, exited, lost or retry event, or null. The job's state follows from it.
const LifecycleEvent* LastStateEvent(const Lifecycle& lifecycle);

// Returns the newest `queued` line of the attempt that has not begun yet; null when there is none.
const LifecycleEvent* QueuedEvent(const Lifecycle& lifecycle);

// Returns the time of the first `queued` line of that attempt; 0 when there is none.
int64_t QueuedSinceMs(const Lifecycle& lifecycle);

// Returns the `lingering` line of an attempt that nothing has ended yet, or null.
const LifecycleEvent* LingeringEvent(const Lifecycle& lifecycle);

// What is known of the setup of the newest attempt that has one.
struct SetupState {
  int attempt = 0;
  bool running = false;     // it has begun, and neither it nor its attempt has ended
  bool failed = false;      // it ended otherwise than with exit code 0
  bool reused = false;      // the environment was there already
  std::string environment;  // "" until it is known
  int64_t started_ms = 0;   // wall time, Unix epoch
  int64_t ended_ms = 0;     // 0 while it runs
  int64_t output_size = 0;  // of the output when it ended: the job's own begins there
};
// Returns nothing for a lifecycle without a setup.
std::optional<SetupState> SetupOf(const Lifecycle& lifecycle);

// A part of the output: it ends where the next one begins.
struct OutputPart {
  int64_t begin = 0;
  int attempt = 0;
  bool setup = false;  // printed by a setup; its numbers say nothing of the job
  bool ranks = false;  // printed by several processes, with marks
};
// Returns the parts in their order. Two that begin at one place are both there.
std::vector<OutputPart> OutputPartsOf(const Lifecycle& lifecycle);

// Returns the `packages` lines of an attempt, each short enough for a reader; none for no packages.
std::vector<LifecycleEvent> PackageEvents(int attempt, const std::vector<std::string>& packages);

// Returns the packages of the newest attempt that told them, in the order of the lines.
std::vector<std::string> PackagesOf(const Lifecycle& lifecycle);

// Returns the exit code as a shell reports it, at most 255: the code, or 128 + signal.
int ShellExitCode(const LifecycleEvent& exited);

// True when `policy` wants another attempt after `end` (an exited or lost event), the end of
// attempt number `end.attempt`. Stops by the user or by a limit are never retried. "exit:N"
// compares with ShellExitCode; "failed" does not mean an end in the setup.
bool WantsRetry(const gpuctl::v1::RetryPolicy& policy, const LifecycleEvent& end);
// True when `policy` wants another attempt after attempt number `attempt`, which a cluster ended
// together with its allocation and which the cluster's scheduler lets begin again by itself. Both
// "preempted" and "lost" ask for that.
bool WantsRestart(const gpuctl::v1::RetryPolicy& policy, int attempt);

// Returns the wait before attempt number `next_attempt` (2 is the first retry): backoff_ms, doubled
// each time, at most ten minutes.
int64_t RetryDelayMs(const gpuctl::v1::RetryPolicy& policy, int next_attempt);

// True when the job is over: the last state event is `exited` or `lost` and no retry follows.
bool IsOver(const Lifecycle& lifecycle);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_JOB_LIFECYCLE_H_
