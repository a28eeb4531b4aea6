// The flags for a run file's resources: the machine to rent, and its price.
#ifndef GPUCTL_CLIENT_CONFIG_RESOURCE_FLAGS_H_
#define GPUCTL_CLIENT_CONFIG_RESOURCE_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/base/flag_set.h"
#include "client/spec/run_spec.h"

namespace gpuctl {

// Flags as typed; each overrides the run file's field of the same name. A list is one value with
// commas, or several flags.
struct ResourceFlags {
  std::vector<std::string> gpu, providers, regions;
  std::string on_price_rise, max_price, disk, image, registry, volume;
  int gpus = -1;  // -1: not given
  bool spot = false;
};

// Adds the flags to `set`. `image`: true when the verb takes a container image.
void AddResourceFlags(FlagSet& set, const std::string& group, bool image, ResourceFlags& flags);

// Notes in spec.flagged which fields the flags have, so that no setting takes their place.
void NoteResourceFlags(const ResourceFlags& flags, RunSpec& spec);

// Applies the flags to `spec`. INVALID_ARGUMENT names the wrong flag.
absl::Status ApplyResourceFlags(const ResourceFlags& flags, const std::string& verb, RunSpec& spec);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_CONFIG_RESOURCE_FLAGS_H_
