// The parts of Runpod's REST v2.
#ifndef GPUCTL_TESTS_CLOUDSIM_RUNPOD_H_
#define GPUCTL_TESTS_CLOUDSIM_RUNPOD_H_

#include <optional>

#include "tests/cloudsim/registries.h"
#include "tests/cloudsim/runpod_stock.h"
#include "tests/cloudsim/service.h"

namespace gpuctl::cloudsim {

Reply RunpodError(int status, const std::string& detail, const Json& errors = nullptr);

// Answers requests; absent for other paths.
std::optional<Reply> RunpodPods(World& world, const Call& call, const Caller& caller);
std::optional<Reply> RunpodCatalog(World& world, const Call& call);
std::optional<Reply> RunpodStorage(World& world, const Call& call, const Caller& caller);
Reply RunpodGraphql(World& world, const Call& call);
// Returns the route of a GraphQL request by its first field: create, terminate, …
std::string RunpodGraphqlRoute(const Call& call);

// Makes a pod from the body of POST /v2/pods; a spot pod when `bid_usd_per_gpu_hour` is not 0.
Reply RunpodMakePod(World& world, const Caller& caller, Json body, double bid_usd_per_gpu_hour);

// Ends the charges of a pod that was stopped, and begins those of its own mount. Its container disk
// is gone, and a network volume bills by itself.
void RunpodKeepDisk(Instance* pod, int64_t now_ms);

// Returns the account's table of that name: network volumes or templates, by their ids.
Json& RunpodTable(World& world, const Account& account, const char* name);

// Does "start", "stop", "restart" or "terminate". Returns the answer of the REST API.
Reply RunpodAct(World& world, const Caller& caller, Instance* pod, const std::string& action);
// Returns the pod as the REST API shows it.
Json RunpodPodJson(World& world, const Instance& pod);

// What a host has for each GPU; a request for more finds no host.
inline constexpr int64_t kRunpodVcpusPerGpu = 32;
// Returns gigabytes.
inline int64_t RunpodRamPerGpu(const RunpodGpu& gpu) {
  return gpu.memory_gb < 64 ? 128 : 2 * int64_t{gpu.memory_gb};
}

// Returns the 422 for a body that breaks `schema`; absent when it fits.
std::optional<Reply> RunpodBadBody(const Call& call, const Json& schema);

// Returns the caller's pod in any state; null also for pods of others.
Instance* RunpodPod(World& world, const Caller& caller, const std::string& id);

// Answers Runpod's /v2/registries; absent for other paths.
std::optional<Reply> RunpodRegistries(World& world, const Call& call, const Caller& caller);
// Returns the account's entries, each with id and name.
Json RunpodRegistriesOf(const World& world, const Account& account);
// Returns the login of a pod's "registry"; absent when the account has no such entry.
std::optional<ImageLogin> RunpodLoginOf(const World& world, const Account& account,
                                        const std::string& id);

// Returns the entries of all accounts for the books, without their logins.
Json RunpodRegistryBooks(const RunpodStock& stock);

inline constexpr char kRunpodNoCapacity[] =
    "There are no longer any instances available with the requested specifications. Please refresh "
    "and try again.";

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_RUNPOD_H_
