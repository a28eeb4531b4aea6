// Runpod's offers on demand, and their references. For the adapter's own files only.
#ifndef GPUCTL_PROVISIONING_RUNPOD_RUNPOD_OFFERS_H_
#define GPUCTL_PROVISIONING_RUNPOD_RUNPOD_OFFERS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "provisioning/market/types.h"
#include "provisioning/rest/rest_api.h"

namespace gpuctl {

inline constexpr char kRunpodName[] = "runpod";
// Returns Runpod's name for its own data centres, or for the machines of its hosts.
const char* RunpodCloud(bool secure);
bool IsRunpodCloud(absl::string_view name);

// The content of an offer's reference.
struct RunpodRef {
  std::string cloud;
  std::string data_center;  // empty: any
  int gpu_count = 0;
  std::string gpu_id;
};
// Parses the reference. INVALID_ARGUMENT: the offer is not Runpod's, or is for a spot machine.
absl::StatusOr<RunpodRef> ParseRunpodRef(const Offer& offer);

// Lists offers as Provider::ListOffers does, for machines on demand; ignores requirements.spot.
absl::StatusOr<std::vector<Offer>> ListRunpodOffers(const RestApi& api,
                                                    const Requirements& requirements);

// Returns Offer::place of a machine on demand: its model and data centre, because Runpod does not
// name the machine before it is rented.
std::string RunpodPlace(absl::string_view cloud, absl::string_view data_center,
                        absl::string_view gpu_id);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_RUNPOD_RUNPOD_OFFERS_H_
