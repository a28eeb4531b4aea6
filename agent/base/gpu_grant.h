// Which GPUs the server gave to an attempt: gpus.json in the job's directory, between the server,
// which writes it before it launches the attempt's shim, and that shim.
#ifndef GPUCTL_AGENT_BASE_GPU_GRANT_H_
#define GPUCTL_AGENT_BASE_GPU_GRANT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// The GPUs are the attempt's from the moment the file is there until the attempt's end.
struct GpuGrant {
  int attempt = 0;
  std::vector<std::string> gpus;  // as in CUDA_VISIBLE_DEVICES
};

// Returns the job's newest grant. NOT_FOUND when there is none, DATA_LOSS for another content.
absl::StatusOr<GpuGrant> ReadGpuGrant(const JobPaths& job);

// Replaces the job's grant, durably.
absl::Status WriteGpuGrant(const JobPaths& job, const GpuGrant& grant);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_GPU_GRANT_H_
