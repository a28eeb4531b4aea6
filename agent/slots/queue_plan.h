// Decides which waiting jobs get which GPUs. Pure.
#ifndef GPUCTL_AGENT_SLOTS_QUEUE_PLAN_H_
#define GPUCTL_AGENT_SLOTS_QUEUE_PLAN_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

// Jobs may pass an earlier one that wants more GPUs than are free until that one has waited so
// long. From then on what becomes free is kept for it.
constexpr absl::Duration kQueuePatience = absl::Minutes(10);

// A job that waits for GPUs.
struct WaitingJob {
  std::string job_id;
  int gpus = 0;  // at least 1
  // Its place in the order of arrival; 0: it has none yet and comes last.
  int64_t ticket = 0;
  absl::Duration waited;
  int64_t since_ms = 0;
  // It waits for the values of its secrets as well, and nobody waits for it.
  bool needs_secrets = false;
};

// What live jobs have.
struct HeldGpus {
  std::set<std::string> gpus;
  bool all = false;    // nothing is free, whatever `gpus` has
  std::string all_by;  // the job that has all, when it is one
};

struct QueuePlan {
  std::map<std::string, std::vector<std::string>> starts;  // the GPUs of jobs that start now
  std::map<std::string, gpuctl::v1::JobQueue> waits;       // all others
  int free_gpus = 0;                                       // after the starts
};

// Plans for the GPUs `gpus`, of which `held` are taken. A job that wants more than there are keeps
// nobody waiting. `listing`: the driver may list more GPUs in a moment; until then nobody passes.
QueuePlan PlanQueue(const std::vector<std::string>& gpus, const HeldGpus& held,
                    std::vector<WaitingJob> waiting, bool listing = false);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SLOTS_QUEUE_PLAN_H_
