// Runpod (REST, version 2): containers in its own data centres and on the machines of its hosts.
//
// There is one offer for each GPU type, cloud and data centre. The price includes the container's
// disk at Runpod's list price, which the catalog and a pod's `cost` leave out. This version of the
// API has no spot machines: they are offered and rented through the older GraphQL, whose end Runpod
// has announced. Their price is a bid a little over the lowest accepted one. Runpod takes them away
// without notice, and their data centre is not known before the rent.
//
// Rent puts the public key into the pod's PUBLIC_KEY, from which Runpod's images set up sshd; with
// no key given, Runpod injects those of the account. Other images must do the same, or have an
// sshd. The start script is packed into the container's command: `bash -c` unpacks it, runs it in
// the background with its output in /var/log/gpuctl-start.log, and then becomes the image's own
// /start.sh, or sshd in an image without one. Runpod restarts the command, and so the start script,
// whenever it ends.
//
// A login at a container registry is an entry of the account, under a name that shows owner and
// login (StoredLoginName): the same login takes the same entry again. A pod waits for ever for an
// image that cannot be pulled; only its log tells, which Describe reads for a pod with another
// image than ours that does not run yet. That the log has the daemon's words is an assumption.
//
// A machine has at most one network volume. It is mounted at /workspace unless another path is
// requested. Only machines of the secure cloud in its own data centre can have it.
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
