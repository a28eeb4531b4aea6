#include "tests/support/billing_market.h"

#include "tests/contract/provider_contract.h"
#include "tests/support/stepping_clock.h"

namespace gpuctl {
namespace {

std::unique_ptr<Provider> MakeMarket() {
  static SteppingClock* const clock = new SteppingClock;
  return std::make_unique<BillingMarket>("fake", std::make_shared<BillingAccount>(*clock), *clock);
}

INSTANTIATE_TEST_SUITE_P(Fake, ProviderContract,
                         ::testing::Values(ProviderContractHarness{"fake", MakeMarket}),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace gpuctl
