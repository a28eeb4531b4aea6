// Vast.ai: containers on the machines of many hosts, on demand or, as spot machines, by a bid.
//
// Offers are those of verified hosts with at least two directly open ports. The price includes the
// requested disk; traffic costs extra, by the GB.
//
// Rent registers the public key with the account when it is missing. Vast gives the account's keys
// to instances made after that. The start script is Vast's onstart, which runs as root each time
// the container starts. Vast accepts 4096 characters: a longer script is packed, and is
// INVALID_ARGUMENT when it still does not fit. A volume's id is a number. A volume is on one
// machine and is mounted at /workspace unless another path is requested.
//
// A login at a container registry travels in the create alone.
//
// A create that fails can leave an instance that bills. The adapter ends it at once. If Vast then
// says that it is gone, the error is that of the create; else it is UNKNOWN with the id, and
// listings must settle it.
//
// A host may announce a higher price, which needs an answer. The old price holds until the current
// contract ends, the new one from then on. According to Vast's wording, a contract ends then if the
// new price was refused or not answered. An instance whose contract has ended is stopped, cannot
// start, and pays for its storage.
//
// Instance::address is that of the machine itself; Vast's ssh proxy is not used.
#ifndef GPUCTL_PROVISIONING_VAST_VAST_PROVIDER_H_
#define GPUCTL_PROVISIONING_VAST_VAST_PROVIDER_H_

#include <memory>

#include "provisioning/http/http.h"
#include "provisioning/market/provider.h"
#include "provisioning/market/provider_access.h"

namespace gpuctl {

// Returns the provider "vast". Rate classes, with the least time between two calls: "search" (none
// known), "volumes" (5.5 s), "create" (4.5 s, 12 s after a refusal), "destroy" (3 s), "show" (2 s),
// "list", "keys" and "prices" (1 s).
std::unique_ptr<Provider> MakeVastProvider(std::shared_ptr<Http> http, ProviderAccess access);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_VAST_VAST_PROVIDER_H_
