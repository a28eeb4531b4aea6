// Until the three markets' own sources are there.
#include "provisioning/lambda/lambda_provider.h"
#include "provisioning/runpod/runpod_provider.h"
#include "provisioning/vast/vast_provider.h"

namespace gpuctl {
std::unique_ptr<Provider> MakeRunpodProvider(std::shared_ptr<Http>, ProviderAccess) {
  return nullptr;
}
std::unique_ptr<Provider> MakeLambdaProvider(std::shared_ptr<Http>, ProviderAccess) {
  return nullptr;
}
std::unique_ptr<Provider> MakeVastProvider(std::shared_ptr<Http>, ProviderAccess) {
  return nullptr;
}
}  // namespace gpuctl
