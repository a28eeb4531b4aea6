// Runpod's spot machines, through its GraphQL: offers, and the call that rents. A rented machine is
// an ordinary pod. For the adapter's own files only.
#ifndef GPUCTL_PROVISIONING_RUNPOD_RUNPOD_SPOT_H_
#define GPUCTL_PROVISIONING_RUNPOD_RUNPOD_SPOT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "provisioning/market/types.h"
#include "provisioning/rest/rest_api.h"
#include "provisioning/runpod/runpod_api.h"

namespace gpuctl {

// The content of a spot offer's reference.
struct RunpodSpotRef {
  std::string cloud;
  double min_bid_usd_per_hour = 0;  // of one GPU
  int gpu_count = 0;
  std::string gpu_id;
};
// Parses the reference. Absent for an offer that is not a spot machine of Runpod.
std::optional<RunpodSpotRef> ParseRunpodSpotRef(const Offer& offer);

// Returns no offers when regions are requested, because a spot machine's region is not known before
// the rent.
absl::StatusOr<std::vector<Offer>> ListRunpodSpotOffers(const RestApi& api,
                                                        const Requirements& requirements);

// Rents as Provider::Rent does. `create` has the data for an ordinary pod. Errors begin with
// `doing`.
absl::StatusOr<Instance> RentRunpodSpot(const RestApi& api, absl::string_view doing,
                                        const Offer& offer, const RunpodSpotRef& ref,
                                        const RentOptions& options, const RunpodCreate& create);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_RUNPOD_RUNPOD_SPOT_H_
