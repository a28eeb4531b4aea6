// The provider contract for the adapters of the rental markets. Each test has its own markets.
#include <memory>
#include <utility>

#include "provisioning/http/curl_http.h"
#include "provisioning/markets.h"
#include "tests/contract/provider_contract.h"
#include "tests/support/cloud_simulator.h"

namespace gpuctl {
namespace {

// Real HTTP to simulated markets that end with this object.
class SimulatedHttp : public Http {
 public:
  absl::StatusOr<HttpResponse> Send(const HttpRequest& request) override {
    return http_->Send(request);
  }
  const std::string& url() const { return cloud_.url(); }

 private:
  CloudSimulator cloud_{{"--no-nodes", "--no-rate-limits", "--boot-s", "0"}};
  const std::unique_ptr<Http> http_ = MakeCurlHttp({});
};

ProviderContractHarness Market(const std::string& name) {
  ProviderContractHarness harness;
  harness.name = name;
  harness.options.ssh_public_key =
      "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE1hcmtldHMgY29udHJhY3Q gpuctl";
  harness.options.start_script = "echo started\n";
  harness.make = [name]() -> std::unique_ptr<Provider> {
    auto http = std::make_shared<SimulatedHttp>();
    ProviderAccess access;
    access.base_url = http->url() + "/" + name;
    access.api_key = CloudSimulator::Key(name);
    absl::StatusOr<std::unique_ptr<Provider>> provider =
        MakeMarket(name, std::move(access), std::move(http));
    EXPECT_TRUE(provider.ok()) << provider.status();
    return provider.ok() ? *std::move(provider) : nullptr;
  };
  return harness;
}

// Returns the same harness for machines that may be taken away.
ProviderContractHarness Spot(const std::string& name) {
  ProviderContractHarness harness = Market(name);
  harness.name = name + "_spot";
  harness.requirements.spot = true;
  return harness;
}

INSTANTIATE_TEST_SUITE_P(Markets, ProviderContract,
                         ::testing::Values(Market("runpod"), Market("lambda"), Market("vast"),
                                           Market("digitalocean"), Market("shadeform"),
                                           Market("huggingface"), Spot("runpod"), Spot("vast"),
                                           Spot("shadeform")),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace gpuctl
