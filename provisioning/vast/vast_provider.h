// Vast.ai: containers on the machines of many hosts, on demand or, as spot machines, by a bid.
//
// Offers are of verified hosts with at least two directly open ports. The price counts the disk
// asked for; traffic comes on top, by the GB.
//
// Rent registers the public key with the account when it is not there: Vast gives the keys of the
// account to the instances made after it. The start script is Vast's onstart, run as root each time
// the container starts. Vast takes 4096 characters: a longer script is packed, and INVALID_ARGUMENT
// when it still does not fit. A volume's id is a number. A volume lies on one machine and is
// mounted at /workspace unless another path is asked for.
//
// A create that fails can leave an instance that bills. It is ended at once, and the error is that
// of the create if Vast then says that it is gone; else UNKNOWN with its id, to be settled by
// listing.
//
// A host may announce a higher price, which needs an answer. The old price holds until the current
// contract ends, the new one from then on. Vast's words mean that a contract ends there when the
// new price was refused or not answered; nobody has published it.
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
