// Runpod's spot machines, through its GraphQL: offers, and the one call that rents. What was rented
// is a pod like any other. For the adapter's own files only.
#ifndef GPUCTL_PROVISIONING_RUNPOD_RUNPOD_SPOT_H_
#define GPUCTL_PROVISIONING_RUNPOD_RUNPOD_SPOT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "provisioning/market/rest_api.h"
#include "provisioning/market/types.h"
#include "provisioning/runpod/runpod_api.h"

namespace gpuctl {

// What the reference of a spot offer says.
struct RunpodSpotRef {
  std::string cloud;
  double min_bid_usd_per_hour = 0;  // of one GPU
  int gpu_count = 0;
  std::string gpu_id;
};
// Absent for an offer that is no spot machine of Runpod's.
std::optional<RunpodSpotRef> ParseRunpodSpotRef(const Offer& offer);

// Returns none where regions are asked for, because a spot machine's region is not known before.
absl::StatusOr<std::vector<Offer>> ListRunpodSpotOffers(const RestApi& api,
                                                        const Requirements& requirements);

// As Provider::Rent. `create` is what an ordinary pod would be made with. Errors begin with
// `doing`.
absl::StatusOr<Instance> RentRunpodSpot(const RestApi& api, absl::string_view doing,
                                        const Offer& offer, const RunpodSpotRef& ref,
                                        const RentOptions& options, const RunpodCreate& create);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_RUNPOD_RUNPOD_SPOT_H_
