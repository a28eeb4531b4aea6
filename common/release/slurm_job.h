// The number of a job of Slurm, as squeue, scancel and scontrol know it: "17", and "17_3" for task
// 3 of the array 17. (srun, and the job's environment, have another number for a task.)
#ifndef GPUCTL_COMMON_RELEASE_SLURM_JOB_H_
#define GPUCTL_COMMON_RELEASE_SLURM_JOB_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace gpuctl {

struct SlurmJob {
  static constexpr int64_t kNoTask = -1;
  int64_t number = 0;
  int64_t task = kNoTask;
  bool is_task() const { return task != kNoTask; }
  auto operator<=>(const SlurmJob&) const = default;
};

// Returns nothing for any other text, such as "17_[0-9]" and "17.batch".
std::optional<SlurmJob> ParseSlurmJob(absl::string_view text);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_RELEASE_SLURM_JOB_H_
