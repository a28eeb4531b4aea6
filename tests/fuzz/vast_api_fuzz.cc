// Fuzzes the answers of Vast's API: each gives an error or a value within its bounds, never a
// crash.
#include <cstdint>
#include <cstdlib>

#include "provisioning/market/regions.h"
#include "provisioning/market/rent_options.h"
#include "provisioning/vast/vast_api.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view body(reinterpret_cast<const char*>(data), size);
  const auto check = [](const gpuctl::VastInstance& instance) {
    if (instance.ssh_host_port < 0 || instance.ssh_host_port > 65535) abort();
    if (!instance.public_ip.empty() && !gpuctl::IsSafeHost(instance.public_ip)) abort();
  };
  if (const auto instance = gpuctl::ParseVastInstance(body); instance.ok() && *instance) {
    check(**instance);
  }
  if (const auto page = gpuctl::ParseVastInstances(body); page.ok()) {
    for (const gpuctl::VastInstance& instance : page->instances) check(instance);
  }
  if (const auto offers = gpuctl::ParseVastOffers(body); offers.ok()) {
    for (const gpuctl::VastOffer& offer : *offers) {
      const size_t code = gpuctl::CountryCode(offer.geolocation).size();
      if (code != 0 && code != 2) abort();
    }
  }
  if (const auto volumes = gpuctl::ParseVastVolumes(body); volumes.ok()) {
    for (const gpuctl::VastVolume& volume : *volumes) {
      if (volume.instances < 0) abort();
    }
  }
  (void)gpuctl::ParseVastPriceRises(body);
  (void)gpuctl::ParseVastCreated(body);
  (void)gpuctl::ParseVastSshKeys(body);
  (void)gpuctl::ParseVastReply(body);
  return 0;
}
