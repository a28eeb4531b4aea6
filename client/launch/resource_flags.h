// The flags for a run file's resources: what to rent, and for how much.
#ifndef GPUCTL_CLIENT_LAUNCH_RESOURCE_FLAGS_H_
#define GPUCTL_CLIENT_LAUNCH_RESOURCE_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/base/flag_set.h"
#include "client/spec/run_spec.h"

namespace gpuctl {

// As typed; each overrides the run file's field of the same name. Lists may be given in one value,
// with commas, or in several flags.
struct ResourceFlags {
  std::vector<std::string> gpu, providers, regions;
  std::string max_price, disk, image, volume;
  bool spot = false;
};

// `image`: whether the verb has a use for a container image.
void AddResourceFlags(FlagSet& set, const std::string& group, bool image, ResourceFlags& flags);

// INVALID_ARGUMENT names the flag.
absl::Status ApplyResourceFlags(const ResourceFlags& flags, const std::string& verb, RunSpec& spec);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LAUNCH_RESOURCE_FLAGS_H_
