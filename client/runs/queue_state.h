// A run's wait for GPUs of its machine, as the machine last told it.
#ifndef GPUCTL_CLIENT_RUNS_QUEUE_STATE_H_
#define GPUCTL_CLIENT_RUNS_QUEUE_STATE_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

inline constexpr char kSlurm[] = "Slurm";

struct QueueState {
  int gpus = 0;          // that it waits for; 0: not known
  int free_gpus = 0;     // that no run has
  int place = 0;         // 1: next; 0: not known
  int64_t since_ms = 0;  // the node's wall time; 0: not known
  // The machine has lost the values of the run's secrets: it starts when a client gives them again.
  bool needs_secrets = false;
  // The scheduler in whose queue its machine waits for its start; "" for none. Then the run waits
  // for no GPUs of other runs.
  std::string scheduler;
  std::string held_by;  // id of a job that says no number of GPUs and so has all; "" for none
};

// Returns the state that a node told; values that no honest node tells become unknown.
QueueState QueueStateOf(const gpuctl::v1::JobQueue& queue);

// Returns "waits for 2 GPUs, 1 free, 3rd", "waits in Slurm's queue", or the reason that is not a
// lack of GPUs.
std::string DescribeQueue(const QueueState& queue);
// Returns null for a run that does not wait.
nlohmann::ordered_json QueueToJson(const std::optional<QueueState>& queue);

// Stores the state in the directory of the run's copy. Another one follows soon, so a power loss
// may lose it.
absl::Status StoreQueueState(const std::string& mirror_dir, const QueueState& queue);
// Returns what was stored last; nothing when that cannot be read.
std::optional<QueueState> ReadQueueState(const std::string& mirror_dir);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RUNS_QUEUE_STATE_H_
