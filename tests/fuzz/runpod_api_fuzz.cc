// Fuzzes the answers of Runpod's API: each gives an error or a value within its bounds, never a
// crash.
#include <cstdint>
#include <cstdlib>

#include "provisioning/rest/rest_api.h"
#include "provisioning/runpod/runpod_api.h"
#include "provisioning/runpod/runpod_graphql.h"
#include "tests/fuzz/market_answers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view body(reinterpret_cast<const char*>(data), size);
  gpuctl::CheckMarketAnswers("runpod", body);
  if (const auto login = gpuctl::ParseRunpodRegistry(body); login.ok() && login->id.empty())
    abort();
  if (gpuctl::FindRunpodPullError(body).size() > body.size() * 3) abort();
  if (const auto pod = gpuctl::ParseRunpodSpotPod(body); pod.ok() && pod->id.empty()) abort();
  (void)gpuctl::ParseRunpodSpotTypes(body);
  (void)gpuctl::FindRunpodGraphqlError(body);
  (void)gpuctl::ParseRunpodCatalog(body);
  (void)gpuctl::FindRunpodPodId(body);
  if (gpuctl::PrintableText(gpuctl::RunpodErrorDetail(body), 50).size() > 160) abort();
  return 0;
}
