// Lambda.
#ifndef GPUCTL_PROVISIONING_LAMBDA_LAMBDA_PROVIDER_H_
#define GPUCTL_PROVISIONING_LAMBDA_LAMBDA_PROVIDER_H_

#include <memory>

#include "provisioning/http.h"
#include "provisioning/provider.h"
#include "provisioning/provider_access.h"

namespace gpuctl {

std::unique_ptr<Provider> MakeLambdaProvider(std::shared_ptr<Http> http, ProviderAccess access);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_LAMBDA_LAMBDA_PROVIDER_H_
