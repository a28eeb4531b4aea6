// DigitalOcean's GPU Droplets: virtual machines with Ubuntu, rented by size and region. There are
// no container images of the user's choice, no spot machines, and no volumes of gpuctl's.
//
// Nothing on a droplet can end its bill: there is no key for one droplet alone, and a droplet that
// is off bills on. So only a client ends it, and a droplet that is off counts as failed.
//
// Rent looks for the public key among those of the account, by type and blob, and registers it when
// it is missing; without a given key, the account's first one is used. The start script is
// cloud-init's user data and runs as root at the first boot. The label is the droplet's name and
// one of its tags.
//
// The market's list of droplets leaves out those with GPUs, and another list has only them:
// ListInstances reads both, because the other droplets bill, too.
#ifndef GPUCTL_PROVISIONING_DIGITALOCEAN_DIGITALOCEAN_PROVIDER_H_
#define GPUCTL_PROVISIONING_DIGITALOCEAN_DIGITALOCEAN_PROVIDER_H_

#include <memory>

#include "provisioning/http/http.h"
#include "provisioning/market/provider.h"
#include "provisioning/market/provider_access.h"

namespace gpuctl {

// Returns the provider "digitalocean". All its requests count against one rate limit.
std::unique_ptr<Provider> MakeDigitaloceanProvider(std::shared_ptr<Http> http,
                                                   ProviderAccess access);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_DIGITALOCEAN_DIGITALOCEAN_PROVIDER_H_
