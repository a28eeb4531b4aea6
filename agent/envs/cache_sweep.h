// Keeps the shared caches of package managers (caches/uv, pip, conda) from filling the disk.
#ifndef GPUCTL_AGENT_ENVS_CACHE_SWEEP_H_
#define GPUCTL_AGENT_ENVS_CACHE_SWEEP_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// Removes whole caches, the longest unused first, while less than `want_free_bytes` of the disk are
// free and `in_use` is false: any live job may read one, and a queued one will. A part of a cache
// cannot be removed, because only its package manager knows what belongs together. Returns their
// names. What an earlier sweep left half removed goes first.
absl::StatusOr<std::vector<std::string>> SweepCaches(const RootPaths& root, int64_t want_free_bytes,
                                                     const std::function<bool()>& in_use);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_ENVS_CACHE_SWEEP_H_
