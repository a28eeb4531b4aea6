// Lambda Cloud: virtual machines with Ubuntu and Lambda's own stack, rented by instance type and
// region. It has no container images, no spot machines and no choice of disk sizes. It also has no
// key that could end only one instance, so an instance never ends its own bill.
//
// Rent first looks for the public key among those of the account, by type and blob, and registers
// it when it is missing; a launch takes exactly one key. Without a given key, the account's first
// one is used. The start script is sent as cloud-init user data and runs as root at the first boot.
// Before that the variables of `env` are put into /etc/environment and into the script's
// environment. A volume is the id of a file system of the same region, mounted where it says, below
// /home, /lambda/nfs or /data.
//
// Offers whose description says arm64 (GH200) have ARM processors.
#ifndef GPUCTL_PROVISIONING_LAMBDA_LAMBDA_PROVIDER_H_
#define GPUCTL_PROVISIONING_LAMBDA_LAMBDA_PROVIDER_H_

#include <memory>

#include "provisioning/http/http.h"
#include "provisioning/market/provider.h"
#include "provisioning/market/provider_access.h"

namespace gpuctl {

// Returns the provider "lambda". Rate classes: "launch" (one in 12 s); other requests have no class
// (one a second, launches included). ready_within is for eight GPUs, which take twice as long as
// one.
std::unique_ptr<Provider> MakeLambdaProvider(std::shared_ptr<Http> http, ProviderAccess access);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_LAMBDA_LAMBDA_PROVIDER_H_
