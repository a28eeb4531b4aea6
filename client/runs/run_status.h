// Derives a run's state and end from the data stored on the laptop. Pure.
#ifndef GPUCTL_CLIENT_RUNS_RUN_STATUS_H_
#define GPUCTL_CLIENT_RUNS_RUN_STATUS_H_

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "client/runs/queue_state.h"
#include "client/runs/run_end.h"
#include "client/runs/run_store.h"
#include "common/job/lifecycle.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

// A run's state in one word.
enum class RunPhase {
  kLaunching,
  kPending,
  kQueued,     // waits for GPUs of its machine
  kSettingUp,  // its environment is being made
  kRunning,
  kStopping,
  kRetrying,
  kSucceeded,
  kFailed,
  kStopped,
  kLimit,
  kLost,
};
// Returns that word, for people and scripts: "launching".
const char* WordOf(RunPhase phase);

struct RunStatus {
  // The state as of the last byte from the node; gpuctl/v1/run.proto defines the states.
  gpuctl::v1::JobState state = gpuctl::v1::JOB_STATE_UNSPECIFIED;
  RunPhase phase = RunPhase::kLaunching;
  int attempt = 0;
  int64_t started_ms = 0;           // of the first attempt
  std::optional<QueueState> queue;  // while it waits for GPUs
  // The GPUs that are its newest attempt's own; empty when it sees all.
  std::vector<std::string> gpu_ids;
  std::optional<SetupState> setup;  // of the newest attempt that has one
  bool over = false;
  RunEnd end;  // when over
};

// Derives the status from the mirrored lifecycle. `row` tells whether a node ever accepted the job,
// and the end if it is recorded.
RunStatus DeriveStatus(const RunRow& row, const Lifecycle& lifecycle);
// Adds its place in the queue, as it was last told, to the status of a run that waits for GPUs.
void AddQueueState(const std::string& mirror_dir, RunStatus& status);
// Returns the status of a run whose end is recorded: this needs nothing else.
RunStatus StatusOfEnded(const RunRow& row);

// Returns the end that `event` (exited or lost) means, with source and cause.
RunEnd EndOf(const LifecycleEvent& event);

// Returns how many attempts of a run its cluster's scheduler has begun, by starting the run's
// allocation again: they count as retries. `run_dir`: ClientPaths::MirrorDir of the run.
int RestartsOf(const std::string& run_dir);
// Returns how many retries are used when another run goes on from a run: one for each run of its
// line so far, and those that the scheduler has begun. `run_dirs`: the mirrors of that run and of
// all that it was resumed from.
int RetriesUsed(const std::vector<std::string>& run_dirs);

// Returns "exited with code 3", "killed by signal 9 (SIGKILL)", "stopped by you (code 143)", "lost:
// …".
std::string DescribeEnd(const RunEnd& end);

// Returns "its command has ended with code 0; what it left running is told to end in 25s".
std::string DescribeLingering(const LifecycleEvent& lingering, int64_t now_ms);

// Returns "for 1m 5s" while it runs; "environment 3f2a…, made in 40s", "…, there already".
std::string DescribeSetup(const SetupState& setup, int64_t now_ms);

// Returns the JSON of a run, the same for every verb that prints one (docs/json.md).
nlohmann::ordered_json RunToJson(const RunRow& row, const RunStatus& status);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RUNS_RUN_STATUS_H_
