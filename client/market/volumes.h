// The volumes of the user's accounts, and the one that a run means.
#ifndef GPUCTL_CLIENT_MARKET_VOLUMES_H_
#define GPUCTL_CLIENT_MARKET_VOLUMES_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/market/volume_view.h"
#include "client/spec/run_spec.h"
#include "provisioning/market/provider.h"
#include "provisioning/market/types.h"

namespace gpuctl {

struct VolumeList {
  std::vector<Volume> volumes;
  std::vector<std::pair<std::string, absl::Status>> unknown;  // markets that could not be asked
};

// The volumes of all `markets`.
VolumeList ListVolumes(const std::vector<Provider*>& markets);

// The one that `request` means, by its id or its name, with its mount_path the one asked for.
// NOT_FOUND names those that there are; INVALID_ARGUMENT when several have that name, or it cannot
// be mounted there; the market's error (exit code 120 or 122) when the only ones that might have it
// could not be asked.
absl::StatusOr<Volume> FindVolume(const std::vector<Provider*>& markets,
                                  const VolumeRequest& request);

// [{provider, cause}].
nlohmann::ordered_json UnknownVolumesToJson(const VolumeList& list);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_MARKET_VOLUMES_H_
