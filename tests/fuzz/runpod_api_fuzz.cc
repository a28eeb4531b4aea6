// Fuzzes the answers of Runpod's API: each gives an error or a value within its bounds, never a
// crash.
#include <cstdint>
#include <cstdlib>

#include "provisioning/market/rent_options.h"
#include "provisioning/market/rest_api.h"
#include "provisioning/runpod/runpod_api.h"
#include "provisioning/runpod/runpod_graphql.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view body(reinterpret_cast<const char*>(data), size);
  const auto check = [](const gpuctl::RunpodPod& pod) {
    if (pod.id.empty()) abort();
    if (pod.ssh_host.empty()) return;
    if (!gpuctl::IsSafeHost(pod.ssh_host) || !gpuctl::IsSafeUser(pod.ssh_user)) abort();
    if (pod.ssh_port < 1 || pod.ssh_port > 65535) abort();
  };
  if (const auto pod = gpuctl::ParseRunpodPod(body); pod.ok()) check(*pod);
  if (const auto page = gpuctl::ParseRunpodPods(body); page.ok()) {
    for (const gpuctl::RunpodPod& pod : page->pods) check(pod);
  }
  if (const auto volumes = gpuctl::ParseRunpodVolumes(body); volumes.ok()) {
    for (const gpuctl::RunpodVolume& volume : *volumes) {
      if (volume.id.empty()) abort();
    }
  }
  if (const auto logins = gpuctl::ParseRunpodRegistries(body); logins.ok()) {
    for (const gpuctl::RunpodRegistry& login : *logins) {
      if (login.id.empty()) abort();
    }
  }
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
