// What a job has of the node's GPUs, or waits for, derived from its files each time.
#ifndef GPUCTL_AGENT_SLOTS_GPU_CLAIM_H_
#define GPUCTL_AGENT_SLOTS_GPU_CLAIM_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/job/job_layout.h"
#include "common/job/lifecycle.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

// The part of a job's spec that its claim follows from.
struct GpuWish {
  std::optional<int> gpus;  // absent: all, without waiting
  bool has_secrets = false;
  bool in_gang = false;  // its keeper lets it begin
};
GpuWish WishOf(const gpuctl::v1::JobSpec& spec);

struct GpuClaim {
  enum class Kind {
    kNone,   // it is over, wants none, or waits for the time of its retry
    kSome,   // it has `gpus`
    kAll,    // it may use every GPU
    kWaits,  // its attempt `attempt` can begin as soon as it gets GPUs
  };
  Kind kind = Kind::kNone;
  std::vector<std::string> gpus;
  int attempt = 0;
  std::optional<LifecycleEvent> queued;  // its line in the queue, if it has one
  int64_t queued_since_ms = 0;           // when it came into the queue
  std::optional<LifecycleEvent> retry;   // the retry that it waits to begin
  bool over = false;                     // it will never claim anything again
};

// Returns the claim of the job in `job`. An attempt has what it was granted until its end is
// recorded; one that no grant is known of has all. `starting`: a shim was launched that may not
// hold its lock yet.
absl::StatusOr<GpuClaim> ReadGpuClaim(const JobPaths& job, const GpuWish& wish, bool starting);

// True when the server has given GPUs to this attempt.
bool HasGrant(const JobPaths& job, int attempt);

// Appends `queued`, under the job's lock. ABORTED when a shim has the job.
absl::Status AppendQueued(const JobPaths& job, LifecycleEvent queued, Clock& clock);

// Takes back what the attempt was given and queues it as `queued` says, under the job's lock: a
// shim on its way finds no grant and starts nothing. ABORTED when a shim has the job.
absl::Status RevokeGrant(const JobPaths& job, LifecycleEvent queued, Clock& clock);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SLOTS_GPU_CLAIM_H_
