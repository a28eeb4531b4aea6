// A Runpod adapter with scripted answers.
#ifndef GPUCTL_PROVISIONING_RUNPOD_TEST_RUNPOD_FIXTURE_H_
#define GPUCTL_PROVISIONING_RUNPOD_TEST_RUNPOD_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "provisioning/market/registry_login.h"
#include "provisioning/runpod/runpod_api.h"
#include "provisioning/runpod/runpod_graphql.h"
#include "provisioning/runpod/runpod_provider.h"
#include "tests/support/matchers.h"
#include "tests/support/scripted_http.h"
#include "tests/support/shared_material.h"

namespace gpuctl {

inline constexpr char kRecorded[] = "providers/runpod/recorded/v2-live-2026-08-20.json";
inline constexpr char kLabel[] = "gpuctl-00ff12ab-0123456789ab";
inline constexpr char kKey[] = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHt0 ada@laptop";
inline constexpr char kNoCapacity[] =
    R"({"title":"Bad Request","status":400,"detail":"There are no longer any instances available with the requested specifications. Please refresh and try again."})";

inline std::string Pod(const std::string& id, const std::string& status, const std::string& ssh) {
  return R"({"id":")" + id + R"(","name":")" + kLabel + R"(","status":")" + status +
         R"(","cost":0.74,"disk":40,"cloud":"SECURE","dataCenterId":"EU-RO-1",)"
         R"("gpu":{"id":"NVIDIA GeForce RTX 4090","count":1},"createdAt":"2026-03-13T20:00:00Z",)"
         R"("runtime":null,"ssh":{"direct":)" +
         ssh + R"(,"proxy":{"host":"ssh.runpod.io","port":22,"username":"x-1","command":""}}})";
}
inline constexpr char kDirect[] =
    R"({"host":"203.0.113.7","port":35558,"username":"root","command":"ssh"})";

inline constexpr char kCatalog[] = R"({"gpus":[
 {"id":"NVIDIA GeForce RTX 4090","name":"RTX 4090","manufacturer":"NVIDIA","memory":24,
  "price":{"secure":0.74,"community":0.34},"maxCount":{"secure":8,"community":4},
  "availability":"HIGH","cudaVersions":[{"version":"12.4","available":true},
  {"version":"12.11","available":true},{"version":"13.0","available":false}],
  "dataCenters":[{"id":"EU-RO-1","name":"","availability":"HIGH"},
  {"id":"US-TX-3","name":"","availability":"LOW"},{"id":"CA-MTL-1","name":"","availability":"NONE"}]},
 {"id":"NVIDIA H100 80GB HBM3","name":"H100 SXM","manufacturer":"NVIDIA","memory":80,
  "price":{"secure":2.69,"community":0},"maxCount":{"secure":8,"community":1},
  "availability":"LOW","dataCenters":[{"id":"US-TX-3","availability":"LOW"}]},
 {"id":"AMD Instinct MI300X OAM","name":"MI300X","manufacturer":"AMD","memory":192,
  "price":{"secure":2.39,"community":0.5},"maxCount":{"secure":8,"community":8},
  "availability":"LOW","dataCenters":[{"id":"EU-RO-1","availability":"LOW"}]}]})";

inline constexpr double kDisk40 = 40 * 0.10 / 720;

class RunpodTest : public ::testing::Test {
 protected:
  Offer AnOffer() {
    Offer offer;
    offer.provider = "runpod";
    offer.ref = "SECURE|EU-RO-1|1|NVIDIA GeForce RTX 4090";
    offer.description = "1 x RTX 4090";
    offer.price_usd_per_hour = 0.75;
    return offer;
  }
  RentOptions Options() {
    RentOptions options;
    options.ssh_public_key = kKey;
    return options;
  }
  absl::Status RentAnswered(int status, const std::string& body) {
    http_->On("POST", "/v2/pods", status, body);
    return provider_->Rent(AnOffer(), Options(), kLabel).status();
  }
  void Catalog(int count, const std::string& secure, const std::string& community) {
    const std::string end = "&count=" + std::to_string(count);
    const std::string start = "/v2/catalog/gpus?include=AVAILABILITY&product=POD&cloud=";
    http_->On("GET", start + "SECURE" + end, 200, secure);
    http_->On("GET", start + "COMMUNITY" + end, 200, community);
  }
  const std::string base_ = "http://runpod.test";
  std::shared_ptr<ScriptedHttp> http_ = std::make_shared<ScriptedHttp>(base_);
  std::unique_ptr<Provider> provider_ = MakeRunpodProvider(http_, {base_, "key-1"});
};

inline RentOptions PrivateOptions() {
  RentOptions options;
  options.image = "ghcr.io/ada/private:1";
  options.registry_login = RegistryLogin{"ghcr.io", "ada", "p4ss word\""};
  return options;
}

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_RUNPOD_TEST_RUNPOD_FIXTURE_H_
