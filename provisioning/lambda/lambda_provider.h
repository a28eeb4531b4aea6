// Lambda Cloud: virtual machines with Ubuntu and Lambda's own stack, rented by instance type and
// region. It has no container images, no spot machines, no disk sizes to choose, and no key that
// could end one instance only, so an instance never ends its own bill.
//
// Rent first finds the public key among those of the account, by type and blob, and registers it
// when it is not there; a launch takes exactly one. With no key given, the account's first one is
// used. The start script travels as cloud-init user data, run as root at the first boot, after the
// variables of `env` were put into /etc/environment and its own environment. A volume is the id of
// a file system of the same region, mounted where it says, below /home, /lambda/nfs or /data.
//
// Offers whose description says arm64 (GH200) have ARM processors.
#ifndef GPUCTL_PROVISIONING_LAMBDA_LAMBDA_PROVIDER_H_
#define GPUCTL_PROVISIONING_LAMBDA_LAMBDA_PROVIDER_H_

#include <memory>

#include "provisioning/http/http.h"
#include "provisioning/market/provider.h"
#include "provisioning/market/provider_access.h"

namespace gpuctl {

// Returns the provider "lambda". Rate classes: "launch" (one in 12 s); all else has none (one a
// second, launches included). ready_within is meant for eight GPUs, which take twice as long as
// one.
std::unique_ptr<Provider> MakeLambdaProvider(std::shared_ptr<Http> http, ProviderAccess access);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_LAMBDA_LAMBDA_PROVIDER_H_
