#include "agent/slots/queue_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace gpuctl {
namespace {

bool IsEarlier(const WaitingJob& a, const WaitingJob& b) {
  const auto key = [](const WaitingJob& job) {
    return std::make_pair(job.ticket > 0 ? job.ticket : std::numeric_limits<int64_t>::max(),
                          job.job_id);
  };
  return key(a) < key(b);
}

std::vector<std::string> FreeGpus(const std::vector<std::string>& gpus, const HeldGpus& held) {
  std::vector<std::string> free;
  if (held.all) return free;
  for (const std::string& gpu : gpus) {
    if (held.gpus.count(gpu) == 0) free.push_back(gpu);
  }
  return free;
}

}  // namespace

QueuePlan PlanQueue(const std::vector<std::string>& gpus, const HeldGpus& held,
                    std::vector<WaitingJob> waiting, bool listing) {
  std::sort(waiting.begin(), waiting.end(), IsEarlier);
  QueuePlan plan;
  std::vector<std::string> free = FreeGpus(gpus, held);
  bool kept = false;  // what is free is kept for an earlier job
  int place = 0;
  for (const WaitingJob& job : waiting) {
    const size_t wanted = static_cast<size_t>(job.gpus);
    const bool could_start = !job.needs_secrets && wanted <= gpus.size();
    if (could_start && !kept && wanted <= free.size()) {
      const auto end = free.begin() + job.gpus;
      plan.starts[job.job_id].assign(free.begin(), end);
      free.erase(free.begin(), end);
      continue;
    }
    kept = kept || (listing ? !job.needs_secrets : could_start && job.waited >= kQueuePatience);
    gpuctl::v1::JobQueue& wait = plan.waits[job.job_id];
    wait.set_gpus(job.gpus);
    wait.set_place(++place);
    wait.set_since_ms(job.since_ms);
    wait.set_needs_secrets(job.needs_secrets);
    wait.set_held_by(held.all_by);
  }
  plan.free_gpus = static_cast<int>(free.size());
  for (auto& [job_id, wait] : plan.waits) wait.set_free_gpus(plan.free_gpus);
  return plan;
}

}  // namespace gpuctl
