// Functions for requirements and offers that all adapters share.
#ifndef GPUCTL_PROVISIONING_MARKET_OFFERS_H_
#define GPUCTL_PROVISIONING_MARKET_OFFERS_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// True when the requested volume belongs to another provider than `provider`.
bool IsElsewhere(const Requirements& requirements, absl::string_view provider);

// Returns the requested GPUs; never empty.
std::vector<Requirements::Gpu> AskedGpus(const Requirements& requirements);
// Returns the allowed numbers of GPUs in a machine.
std::set<int> AskedGpuCounts(const Requirements& requirements);
// True when the request allows a machine with `count` GPUs of that canonical name and memory.
bool AsksFor(const Requirements& requirements, int64_t count, absl::string_view gpu_name,
             int64_t memory_bytes);

// Drops offers above the requested price and sorts the rest by price, then by reference.
void KeepAffordable(const Requirements& requirements, std::vector<Offer>& offers);

// Returns the error of a Rent whose offer is another provider's, or cannot be read.
absl::Status ForeignOffer(const Offer& offer, absl::string_view provider_title);

// Returns the data of a newly rented instance that `offer` has.
Instance RentedInstance(const Offer& offer, absl::string_view id, absl::string_view label,
                        absl::string_view status);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_MARKET_OFFERS_H_
