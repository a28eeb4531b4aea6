// Shadeform: virtual machines of about twenty clouds under one key, rented by cloud, region and
// type. There are no container images of the user's choice and no volumes of gpuctl's. Some clouds
// have spot machines.
//
// Nothing on a machine can end its bill, but the market ends it at a given time (`auto_delete`),
// which Rent sets and MoveExpiry moves. Only an answer about one instance tells that time; the list
// does not.
//
// Every refusal is a 409 with a code of the market's own, so that codes decide what it means. Rent
// looks for the public key among those of the account, by type and blob, and registers it when it
// is missing. The start script runs as root when the machine is active; ssh logs in as `shadeform`,
// who may use sudo.
#ifndef GPUCTL_PROVISIONING_SHADEFORM_SHADEFORM_PROVIDER_H_
#define GPUCTL_PROVISIONING_SHADEFORM_SHADEFORM_PROVIDER_H_

#include <memory>

#include "provisioning/http/http.h"
#include "provisioning/market/provider.h"
#include "provisioning/market/provider_access.h"

namespace gpuctl {

// Returns the adapter of Shadeform.
std::unique_ptr<Provider> MakeShadeformProvider(std::shared_ptr<Http> http, ProviderAccess access);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_SHADEFORM_SHADEFORM_PROVIDER_H_
