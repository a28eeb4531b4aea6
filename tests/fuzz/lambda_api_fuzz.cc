// Fuzzes the answers of Lambda's API: each gives an error or a value within its bounds, never a
// crash.
#include <cstdint>
#include <cstdlib>

#include "provisioning/lambda/lambda_api.h"
#include "provisioning/market/rent_options.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view body(reinterpret_cast<const char*>(data), size);
  const auto check = [](const gpuctl::LambdaInstance& instance) {
    if (instance.id.empty()) abort();
    if (!instance.ip.empty() && !gpuctl::IsSafeHost(instance.ip)) abort();
  };
  if (const auto instance = gpuctl::ParseLambdaInstance(body); instance.ok()) check(*instance);
  if (const auto instances = gpuctl::ParseLambdaInstances(body); instances.ok()) {
    for (const gpuctl::LambdaInstance& instance : *instances) check(instance);
  }
  if (const auto types = gpuctl::ParseLambdaInstanceTypes(body); types.ok()) {
    for (const gpuctl::LambdaInstanceType& type : *types) {
      if (gpuctl::LambdaGpuMemoryBytes(type.gpu_description) < 0) abort();
    }
  }
  if (const auto ids = gpuctl::ParseLambdaLaunch(body); ids.ok()) {
    for (const std::string& id : *ids) {
      if (id.empty()) abort();
    }
  }
  if (const auto systems = gpuctl::ParseLambdaFileSystems(body); systems.ok()) {
    for (const gpuctl::LambdaFileSystem& system : *systems) {
      if (system.id.empty()) abort();
    }
  }
  (void)gpuctl::ParseLambdaSshKeys(body);
  (void)gpuctl::ParseLambdaSshKey(body);
  (void)gpuctl::ParseLambdaTerminated(body);
  (void)gpuctl::ParseLambdaError(body);
  (void)gpuctl::LambdaGpuMemoryBytes(body);
  (void)gpuctl::SshKeyIdentity(body);
  return 0;
}
