// This machine as a node: nothing is rented, nothing bills.
#ifndef GPUCTL_PROVISIONING_LOCAL_LOCAL_PROVIDER_H_
#define GPUCTL_PROVISIONING_LOCAL_LOCAL_PROVIDER_H_

#include <memory>

#include "provisioning/provider.h"

namespace gpuctl {

std::unique_ptr<Provider> MakeLocalProvider();

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_LOCAL_LOCAL_PROVIDER_H_
