// The listing of a market, with the holder of each instance.
#ifndef GPUCTL_PROVISIONING_LEDGER_LISTING_H_
#define GPUCTL_PROVISIONING_LEDGER_LISTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// The holder of an instance that bills.
enum class Holder {
  kWanted,      // ours, and the ledger wants it
  kLaunching,   // ours, and a gpuctl is at work on it
  kLeak,        // ours, and nobody wants it
  kOtherOwner,  // another gpuctl's
  kForeign,     // not gpuctl's
  kLost,        // ours by its name, but not in this ledger: somebody may want it
};
// Returns "ours", "launching", "leak", "other-owner", "not-gpuctl" or "lost".
absl::string_view HolderName(Holder holder);

// One instance of a market's listing, with its holder.
struct ListedInstance {
  Instance instance;  // without its address
  Holder holder = Holder::kForeign;
  std::string lease_id;  // empty: not ours
  std::string why;       // for people: why nobody wants a leak, or what is known of a lost one
};

// The last whole listing of a market.
struct MarketListing {
  std::string provider;
  int64_t listed_ms = 0;
  std::vector<ListedInstance> instances;
};

struct ExcludedPlace {
  std::string place;
  int64_t until_ms = 0;
  std::string reason;
};

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_LEDGER_LISTING_H_
