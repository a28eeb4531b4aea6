// Fuzzes the answers of Vast's API: each gives an error or a value within its bounds, never a
// crash.
#include <cstdint>
#include <cstdlib>

#include "provisioning/market/regions.h"
#include "provisioning/market/rent_options.h"
#include "provisioning/vast/vast_api.h"
#include "tests/fuzz/market_answers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view body(reinterpret_cast<const char*>(data), size);
  const auto check = [](const gpuctl::VastInstance& instance) {
    if (instance.ssh_host_port < 0 || instance.ssh_host_port > 65535) abort();
    if (!instance.public_ip.empty() && !gpuctl::IsSafeHost(instance.public_ip)) abort();
  };
  if (const auto instance = gpuctl::ParseVastInstance(body); instance.ok() && *instance) {
    check(**instance);
  }
  gpuctl::CheckMarketAnswers("vast", body);
  if (const auto offers = gpuctl::ParseVastOffers(body); offers.ok()) {
    for (const gpuctl::VastOffer& offer : *offers) {
      const size_t code = gpuctl::CountryCode(offer.geolocation).size();
      if (code != 0 && code != 2) abort();
    }
  }
  (void)gpuctl::ParseVastPriceRises(body);
  (void)gpuctl::ParseVastCreated(body);
  (void)gpuctl::ParseVastReply(body);
  return 0;
}
