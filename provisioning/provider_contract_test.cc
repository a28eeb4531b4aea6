#include "tests/contract/provider_contract.h"

#include "provisioning/local/local_provider.h"
#include "provisioning/ssh/ssh_provider.h"

namespace gpuctl {
namespace {

SshAddress Address() {
  SshAddress address;
  address.host = "gpu.example";
  address.port = 2222;
  address.user = "ada";
  return address;
}

INSTANTIATE_TEST_SUITE_P(
    Providers, ProviderContract,
    ::testing::Values(ProviderContractHarness{"local", [] { return MakeLocalProvider(); }, false},
                      ProviderContractHarness{"ssh", [] { return MakeSshProvider(Address()); },
                                              false}),
    [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace gpuctl
