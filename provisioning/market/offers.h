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

// The offers of one market that meet `requirements`, which must outlive it.
class OfferList {
 public:
  OfferList(absl::string_view provider, const Requirements& requirements)
      : provider_(provider), requirements_(requirements) {}

  // True when a machine with `count` GPUs of that canonical name and memory is asked for.
  bool Takes(int64_t count, absl::string_view gpu_name, int64_t memory_bytes) const {
    return AsksFor(requirements_, count, gpu_name, memory_bytes);
  }
  // True when a machine there is asked for and can have the volume. `country` is a code or empty.
  bool TakesPlace(absl::string_view region, absl::string_view country) const;
  // True when a disk that is `bytes` large, and cannot be larger, is enough; 0: not said.
  bool TakesDisk(int64_t bytes) const { return bytes == 0 || bytes >= requirements_.disk_bytes; }

  // Returns a new offer with the provider's name. It is valid until the next call.
  Offer& Add();
  // Returns the affordable offers, as KeepAffordable does.
  std::vector<Offer> Finish();

 private:
  std::string provider_;
  const Requirements& requirements_;
  std::vector<Offer> offers_;
};

// Returns the error of a Rent whose offer is another provider's, or cannot be read.
absl::Status ForeignOffer(const Offer& offer, absl::string_view provider_title);

// Returns INVALID_ARGUMENT when `options` want an image, a volume, or a larger disk than the
// offer's. For markets whose machines are virtual ones that have none of these.
absl::Status CheckPlainMachine(const Offer& offer, const RentOptions& options,
                               absl::string_view provider_title);

// Returns the data of a newly rented instance that `offer` has.
Instance RentedInstance(const Offer& offer, absl::string_view id, absl::string_view label,
                        absl::string_view status);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_MARKET_OFFERS_H_
