// Runpod (REST, version 2): containers in its own data centres and on the machines of its hosts.
//
// Offers are one for each GPU type, cloud and data centre. The price counts the container's disk at
// Runpod's list price, which the catalog and a pod's `cost` leave out. This version of the API has
// no spot machines: they are offered and rented through the older GraphQL, whose end Runpod has
// announced. Their price is a bid a little over the lowest accepted one. They are taken away
// without notice, and their data centre is not known before.
//
// Rent puts the public key into the pod's PUBLIC_KEY, from which Runpod's images set up sshd; with
// no key given, Runpod injects those of the account. An image of another make must do the same, or
// have an sshd. The start script travels, packed, in the container's command: `bash -c` unpacks it,
// runs it in the background with its output in /var/log/gpuctl-start.log, and then becomes the
// image's own /start.sh, or, in an image without one, sshd. Runpod starts the command again
// whenever it ends, and with it the start script.
//
// One network volume at most; it is mounted at /workspace unless another path is asked for, and
// only machines of the secure cloud in its own data centre can have it.
#ifndef GPUCTL_PROVISIONING_RUNPOD_RUNPOD_PROVIDER_H_
#define GPUCTL_PROVISIONING_RUNPOD_RUNPOD_PROVIDER_H_

#include <memory>

#include "provisioning/http/http.h"
#include "provisioning/market/provider.h"
#include "provisioning/market/provider_access.h"

namespace gpuctl {

// Returns the provider "runpod". All its requests count against one rate limit of the whole
// account.
std::unique_ptr<Provider> MakeRunpodProvider(std::shared_ptr<Http> http, ProviderAccess access);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_RUNPOD_RUNPOD_PROVIDER_H_
