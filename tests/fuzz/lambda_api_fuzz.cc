// Fuzzes the answers of Lambda's API: each gives an error or a value within its bounds, never a
// crash.
#include <cstdint>
#include <cstdlib>

#include "provisioning/lambda/lambda_api.h"
#include "provisioning/market/rent_options.h"
#include "tests/fuzz/market_answers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view body(reinterpret_cast<const char*>(data), size);
  gpuctl::CheckMarketAnswers("lambda", body);
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
  (void)gpuctl::ParseLambdaTerminated(body);
  (void)gpuctl::ParseLambdaError(body);
  (void)gpuctl::LambdaGpuMemoryBytes(body);
  (void)gpuctl::SshKeyIdentity(body);
  return 0;
}
