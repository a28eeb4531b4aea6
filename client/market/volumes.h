// Lists the volumes of the user's accounts, and finds the one that a run names.
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

// Lists the volumes of all `markets`.
VolumeList ListVolumes(const std::vector<Provider*>& markets);

// Returns the volume with the id or name of `request`, with its mount_path set to the requested
// one. NOT_FOUND names the existing volumes; INVALID_ARGUMENT when several have that name, or the
// volume cannot be mounted there; the market's error (exit code 120 or 122) when only markets that
// did not answer might have it.
absl::StatusOr<Volume> FindVolume(const std::vector<Provider*>& markets,
                                  const VolumeRequest& request);

// Returns [{provider, cause}].
nlohmann::ordered_json UnknownVolumesToJson(const VolumeList& list);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_MARKET_VOLUMES_H_
