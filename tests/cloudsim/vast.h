// Vast.ai, in parts.
#ifndef GPUCTL_TESTS_CLOUDSIM_VAST_H_
#define GPUCTL_TESTS_CLOUDSIM_VAST_H_

#include <optional>
#include <string>

#include "tests/cloudsim/service.h"

namespace gpuctl::cloudsim {

// Each is absent when the path is none of theirs.
std::optional<Reply> VastInstances(World& world, const Call& call, const Caller& caller);
std::optional<Reply> VastCreate(World& world, const Call& call, const Caller& caller);
std::optional<Reply> VastAccount(World& world, const Call& call, const Caller& caller);
std::optional<Reply> VastPrices(World& world, const Call& call, const Caller& caller);
Reply VastSearch(World& world, const Call& call);

// The host of `instance` announces a higher price: {"factor", "disk_factor", "traffic_factor",
// "in_s"}, in force when the contract ends, so many seconds from now.
void AnnounceVastPrice(World& world, Instance* instance, const Json& request);
// What becomes of such a contract, when it ends.
void VastContractDue(World& world, Instance* instance, int64_t now_ms);

// `row` meets {"field": {"gte": 1, "in": […]}, …}; fields that it does not have are no obstacle
// where `lenient`.
bool VastMatches(const Json& row, const Json& filters, bool lenient);

// USD an hour of a gigabyte at so much a month, of 720 hours.
inline double VastDiskRate(double usd_per_month) { return usd_per_month / 720; }

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_VAST_H_
