// What all adapters do alike with requirements and offers.
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

// True when the volume asked for belongs to another provider than `provider`.
bool IsElsewhere(const Requirements& requirements, absl::string_view provider);

// Returns the GPUs asked for; never empty.
std::vector<Requirements::Gpu> AskedGpus(const Requirements& requirements);
// Returns how many GPUs a machine may have.
std::set<int> AskedGpuCounts(const Requirements& requirements);
// True when a machine with `count` GPUs of that canonical name and memory is asked for.
bool AsksFor(const Requirements& requirements, int64_t count, absl::string_view gpu_name,
             int64_t memory_bytes);

// Drops offers dearer than asked for, and sorts the rest by price, then by reference.
void KeepAffordable(const Requirements& requirements, std::vector<Offer>& offers);

// Returns the error of a Rent whose offer is another provider's, or cannot be read.
absl::Status ForeignOffer(const Offer& offer, absl::string_view provider_title);

// Returns what `offer` tells of the instance just rented.
Instance RentedInstance(const Offer& offer, absl::string_view id, absl::string_view label,
                        absl::string_view status);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_MARKET_OFFERS_H_
