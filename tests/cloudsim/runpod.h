// The parts of Runpod's REST v2.
#ifndef GPUCTL_TESTS_CLOUDSIM_RUNPOD_H_
#define GPUCTL_TESTS_CLOUDSIM_RUNPOD_H_

#include <optional>

#include "tests/cloudsim/service.h"

namespace gpuctl::cloudsim {

// Answers requests; absent for other paths.
std::optional<Reply> RunpodPods(World& world, const Call& call, const Caller& caller);
std::optional<Reply> RunpodCatalog(World& world, const Call& call);
std::optional<Reply> RunpodStorage(World& world, const Call& call, const Caller& caller);
Reply RunpodGraphql(World& world, const Call& call);
// True for a GraphQL request that is a create.
bool RunpodRentsByGraphql(const Call& call);

// Makes a pod from the body of POST /v2/pods; a spot pod when `bid_usd_per_gpu_hour` is not 0.
Reply RunpodMakePod(World& world, const Caller& caller, Json body, double bid_usd_per_gpu_hour);

// Returns the 422 for a body that breaks `schema`; absent when it fits.
std::optional<Reply> RunpodBadBody(const Call& call, const Json& schema);

// Returns the caller's pod in any state; null also for pods of others.
Instance* RunpodPod(World& world, const Caller& caller, const std::string& id);

inline constexpr char kRunpodNoCapacity[] =
    "There are no longer any instances available with the requested specifications. Please refresh "
    "and try again.";

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_RUNPOD_H_
