// A run's state and end, derived from what is stored on the laptop. Pure.
#ifndef GPUCTL_CLIENT_RUNS_RUN_STATUS_H_
#define GPUCTL_CLIENT_RUNS_RUN_STATUS_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "client/runs/run_end.h"
#include "client/runs/run_store.h"
#include "common/job/lifecycle.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

// A run's state in one word.
enum class RunPhase {
  kLaunching,
  kPending,
  kRunning,
  kStopping,
  kRetrying,
  kSucceeded,
  kFailed,
  kStopped,
  kLimit,
  kLost,
};
// Returns that word, as people and scripts get it: "launching".
const char* WordOf(RunPhase phase);

struct RunStatus {
  // As of the last byte heard; gpuctl/v1/run.proto says what the states mean.
  gpuctl::v1::JobState state = gpuctl::v1::JOB_STATE_UNSPECIFIED;
  RunPhase phase = RunPhase::kLaunching;
  int attempt = 0;
  int64_t started_ms = 0;  // of the first attempt
  bool over = false;
  RunEnd end;  // when over
};

// From the mirrored lifecycle. `row` tells whether a node ever accepted the job, and how it ended
// if that is recorded.
RunStatus DeriveStatus(const RunRow& row, const Lifecycle& lifecycle);
// For a run whose end is recorded: nothing else is needed.
RunStatus StatusOfEnded(const RunRow& row);

// Returns the end that `event` (exited or lost) means: whose exit code, and why.
RunEnd EndOf(const LifecycleEvent& event);

// "exited with code 3", "killed by signal 9 (SIGKILL)", "stopped by you (code 143)", "lost: …".
std::string DescribeEnd(const RunEnd& end);

// The JSON of a run, the same for every verb that prints one (docs/json.md).
nlohmann::ordered_json RunToJson(const RunRow& row, const RunStatus& status);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RUNS_RUN_STATUS_H_
