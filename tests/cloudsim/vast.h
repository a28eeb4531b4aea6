// The parts of Vast.ai.
#ifndef GPUCTL_TESTS_CLOUDSIM_VAST_H_
#define GPUCTL_TESTS_CLOUDSIM_VAST_H_

#include <optional>
#include <string>

#include "tests/cloudsim/registries.h"
#include "tests/cloudsim/service.h"
#include "tests/cloudsim/vast_stock.h"

namespace gpuctl::cloudsim {

// Answer requests; absent for other paths.
std::optional<Reply> VastInstances(World& world, const Call& call, const Caller& caller);
std::optional<Reply> VastCreate(World& world, const Call& call, const Caller& caller);
std::optional<Reply> VastAccount(World& world, const Call& call, const Caller& caller);
std::optional<Reply> VastPrices(World& world, const Call& call, const Caller& caller);
std::optional<Reply> VastBilling(World& world, const Call& call, const Caller& caller);
std::optional<Reply> VastCommands(World& world, const Call& call, const Caller& caller);
Reply VastError(int status, const std::string& code, const std::string& message);
Reply VastSearch(World& world, const Call& call);

// Makes the host of `instance` announce a higher price: {"factor", "disk_factor", "traffic_factor",
// "in_s"}. It is in force when the contract ends, `in_s` seconds from now.
void AnnounceVastPrice(World& world, Instance* instance, const Json& request);
// Settles a contract that is due: applies the accepted price, or stops the instance for good. Its
// disk bills on.
void VastContractDue(World& world, Instance* instance, int64_t now_ms);

// Parses Vast's image_login, the arguments of `docker login`. Absent for any other text.
std::optional<ImageLogin> ParseVastLogin(const std::string& text);

// Returns the account's environment variables, which each of its instances has.
const Json& VastSecrets(World& world, const Account& account);

// True when `row` meets {"field": {"gte": 1, "in": […]}, …}. With `lenient` it may lack fields.
bool VastMatches(const Json& row, const Json& filters, bool lenient);

// Returns the USD per hour of a gigabyte from its price per month of 720 hours.
inline double VastDiskRate(double usd_per_month) { return usd_per_month / 720; }

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_VAST_H_
