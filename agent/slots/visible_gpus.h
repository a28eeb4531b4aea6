// The GPUs that jobs of this node can get.
#ifndef GPUCTL_AGENT_SLOTS_VISIBLE_GPUS_H_
#define GPUCTL_AGENT_SLOTS_VISIBLE_GPUS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/job/job_layout.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

struct NodeGpus {
  std::vector<std::string> names;  // as in CUDA_VISIBLE_DEVICES
  bool complete = false;           // false: the driver has not listed all yet
};

// Returns the names by which jobs see their GPUs, as in CUDA_VISIBLE_DEVICES, in the driver's
// order: UUIDs, and the index of a GPU without one. `visible` is the value of CUDA_VISIBLE_DEVICES
// that the agent itself was given; only what it names is ours. As CUDA does, this ends at the first
// entry that names no GPU. Parts of a GPU ("MIG-…") are taken as they are.
std::vector<std::string> VisibleGpus(const std::vector<gpuctl::v1::Gpu>& gpus,
                                     const std::optional<std::string>& visible);

// Returns the CUDA_VISIBLE_DEVICES of this process, or else that of BaseEnvironment; nothing when
// neither has one.
std::optional<std::string> OwnVisibleDevices(const RootPaths& paths);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SLOTS_VISIBLE_GPUS_H_
