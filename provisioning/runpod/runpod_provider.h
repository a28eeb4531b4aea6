// Runpod.
#ifndef GPUCTL_PROVISIONING_RUNPOD_RUNPOD_PROVIDER_H_
#define GPUCTL_PROVISIONING_RUNPOD_RUNPOD_PROVIDER_H_

#include <memory>

#include "provisioning/http.h"
#include "provisioning/provider.h"
#include "provisioning/provider_access.h"

namespace gpuctl {

std::unique_ptr<Provider> MakeRunpodProvider(std::shared_ptr<Http> http, ProviderAccess access);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_RUNPOD_RUNPOD_PROVIDER_H_
