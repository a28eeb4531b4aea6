// The registry of the simulated markets.
#include "tests/cloudsim/service.h"

namespace gpuctl::cloudsim {

// One line for each market; a file of its own defines the function.
// clang-format off
#define GPUCTL_CLOUDSIM_SERVICES(make) \
  make(MakeRunpodService) \
  make(MakeLambdaService) \
  make(MakeVastService) \
  make(MakeDigitaloceanService) \
  make(MakeShadeformService) \
  make(MakeHuggingfaceService)
// clang-format on

#define GPUCTL_DECLARE(function) std::unique_ptr<Service> function();
GPUCTL_CLOUDSIM_SERVICES(GPUCTL_DECLARE)
#undef GPUCTL_DECLARE

std::vector<std::unique_ptr<Service>> MakeServices() {
  std::vector<std::unique_ptr<Service>> services;
#define GPUCTL_MAKE(function) services.push_back(function());
  GPUCTL_CLOUDSIM_SERVICES(GPUCTL_MAKE)
#undef GPUCTL_MAKE
  return services;
}

}  // namespace gpuctl::cloudsim
