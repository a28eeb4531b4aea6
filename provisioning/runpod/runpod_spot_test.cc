// Interruptible machines of Runpod.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "absl/strings/escaping.h"
#include "provisioning/market/registry_login.h"
#include "provisioning/market/rent_options.h"
#include "provisioning/runpod/test_runpod_fixture.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Code = absl::StatusCode;

constexpr char kGraphql[] = "/graphql";

std::string SpotTypes(const std::string& price) {
  return R"({"data":{"gpuTypes":[
 {"id":"NVIDIA GeForce RTX 4090","displayName":"RTX 4090","memoryInGb":24,"lowestPrice":)" +
         price + R"(},
 {"id":"AMD Instinct MI300X OAM","displayName":"MI300X","memoryInGb":192,
  "lowestPrice":{"minimumBidPrice":0.01,"stockStatus":"High"}},
 {"id":"NVIDIA L4","displayName":"L4","memoryInGb":24,
  "lowestPrice":{"minimumBidPrice":null,"stockStatus":null}}]}})";
}

Offer ASpotOffer() {
  Offer offer;
  offer.provider = "runpod";
  offer.ref = "SPOT-COMMUNITY|0.200000|2|NVIDIA GeForce RTX 4090";
  offer.description = "2 x RTX 4090 (community, spot)";
  offer.price_usd_per_hour = 0.42 + kDisk40;
  offer.spot = true;
  return offer;
}

TEST_F(RunpodTest, OffersSpotMachinesALittleOverTheLeastBid) {
  Requirements requirements;
  requirements.gpus = {{"", 2, 0, 0}};
  requirements.spot = true;
  http_->On("POST", kGraphql, 200, SpotTypes(R"({"minimumBidPrice":0.4,"stockStatus":"High"})"))
      .On("POST", kGraphql, 200, SpotTypes(R"({"minimumBidPrice":0.2,"stockStatus":"Low"})"));
  auto offers = provider_->ListOffers(requirements);
  ASSERT_OK(offers);
  ASSERT_EQ(offers->size(), 2u);
  const Offer& offer = offers->front();
  EXPECT_EQ(offer.ref, "SPOT-COMMUNITY|0.200000|2|NVIDIA GeForce RTX 4090");
  EXPECT_DOUBLE_EQ(offer.price_usd_per_hour, 2 * 0.2 * 1.05 + kDisk40);
  EXPECT_TRUE(offer.spot);
  EXPECT_EQ(offer.gpu_name, "RTX-4090");
  EXPECT_EQ(offer.gpu_count, 2);
  EXPECT_EQ(offers->at(1).ref, "SPOT-SECURE|0.400000|2|NVIDIA GeForce RTX 4090");
  EXPECT_TRUE(http_->request(0).repeatable);
  EXPECT_THAT(http_->body(0)["query"].get<std::string>(),
              HasSubstr("gpuCount: 2, secureCloud: true"));
  // The bid goes down to the allowed price, but not below the lowest accepted bid.
  for (const double most : {0.41, 0.40}) {
    requirements.max_price_usd_per_hour = most + kDisk40;
    http_->On("POST", kGraphql, 200, SpotTypes("null"))
        .On("POST", kGraphql, 200, SpotTypes(R"({"minimumBidPrice":0.2})"));
    offers = provider_->ListOffers(requirements);
    ASSERT_OK(offers);
    ASSERT_EQ(offers->size(), 1u) << most;
    EXPECT_NEAR(offers->front().price_usd_per_hour, most + kDisk40, 1e-9);
  }
  requirements.max_price_usd_per_hour = 0.39;
  http_->On("POST", kGraphql, 200, SpotTypes("null"))
      .On("POST", kGraphql, 200, SpotTypes(R"({"minimumBidPrice":0.2})"));
  offers = provider_->ListOffers(requirements);
  ASSERT_OK(offers);
  EXPECT_TRUE(offers->empty());
  // The place of a spot machine is not known.
  const size_t asked = http_->requests().size();
  requirements.regions = {"US"};
  offers = provider_->ListOffers(requirements);
  ASSERT_OK(offers);
  EXPECT_TRUE(offers->empty());
  EXPECT_EQ(http_->requests().size(), asked);
}

TEST_F(RunpodTest, SpotOffersThatCannotBeListedAreAnError) {
  Requirements requirements;
  requirements.spot = true;
  const struct {
    int status;
    const char* body;
    Code code;
  } rows[] = {
      {400,
       R"({"errors":[{"message":"Cannot query field","extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]})",
       Code::kInvalidArgument},
      {401, R"({"error":{}})", Code::kUnauthenticated},
      {410, "", Code::kFailedPrecondition},
      {502, "<html>", Code::kUnavailable},
      {200, R"({"errors":[{"message":"who knows"}],"data":null})", Code::kUnknown},
      {200, R"({"data":{}})", Code::kUnknown},
      {200, R"({"data":{"gpuTypes":[{"displayName":"x"}]}})", Code::kUnknown},
      {200, "<html>", Code::kUnknown},
  };
  for (const auto& row : rows) {
    http_->On("POST", kGraphql, row.status, row.body);
    EXPECT_THAT(provider_->ListOffers(requirements), StatusIs(row.code)) << row.body;
  }
}

TEST_F(RunpodTest, RentsASpotMachineByItsBid) {
  http_->On("POST", kGraphql, 200,
            R"({"data":{"podRentInterruptable":{"id":"p1","costPerHr":0.4}}})");
  RentOptions options;
  options.ssh_public_key = kKey;
  options.start_script = "echo hello\n";
  options.env["EPOCHS"] = "3";
  options.volume_id = "vol1";
  const auto instance = provider_->Rent(ASpotOffer(), options, kLabel);
  ASSERT_OK(instance);
  EXPECT_EQ(instance->id, "p1");
  EXPECT_EQ(instance->label, kLabel);
  EXPECT_TRUE(instance->spot);
  EXPECT_DOUBLE_EQ(instance->price_usd_per_hour, 0.4 + kDisk40);
  EXPECT_FALSE(http_->request(0).repeatable);
  EXPECT_THAT(http_->body(0)["query"].get<std::string>(), HasSubstr("podRentInterruptable(input:"));
  const nlohmann::json input = http_->body(0)["variables"]["input"];
  EXPECT_EQ(input["name"], kLabel);
  EXPECT_EQ(input["gpuTypeId"], "NVIDIA GeForce RTX 4090");
  EXPECT_EQ(input["gpuCount"], 2);
  EXPECT_EQ(input["cloudType"], "COMMUNITY");
  EXPECT_NEAR(input["bidPerGpu"].get<double>(), 0.21, 1e-9);
  EXPECT_EQ(input["containerDiskInGb"], 40);
  EXPECT_EQ(input["ports"], "22/tcp");
  EXPECT_THAT(input["dockerArgs"].get<std::string>(), HasSubstr("bash -c"));
  EXPECT_THAT(input["env"], ::testing::SizeIs(2));
  EXPECT_EQ(input["env"][1], (nlohmann::json{{"key", "PUBLIC_KEY"}, {"value", kKey}}));
  EXPECT_EQ(input["networkVolumeId"], "vol1");
  EXPECT_FALSE(input.contains("containerRegistryAuthId"));
  // The bid is never above the allowed price, and never below the lowest accepted bid.
  options.bid_usd_per_hour = 0.40 + kDisk40;
  http_->On("POST", kGraphql, 200, R"({"data":{"podRentInterruptable":{"id":"p2"}}})");
  const auto cheaper = provider_->Rent(ASpotOffer(), options, kLabel);
  ASSERT_OK(cheaper);
  EXPECT_DOUBLE_EQ(cheaper->price_usd_per_hour, 0.40 + kDisk40);
  EXPECT_NEAR(http_->body(1)["variables"]["input"]["bidPerGpu"].get<double>(), 0.20, 1e-9);
  options.bid_usd_per_hour = 0.39 + kDisk40;
  EXPECT_THAT(provider_->Rent(ASpotOffer(), options, kLabel), StatusIs(Code::kInvalidArgument));
  EXPECT_EQ(http_->requests().size(), 2u);
}

TEST_F(RunpodTest, ASpotMachineGetsItsLoginToo) {
  http_->On("GET", "/v2/registries", 200, R"({"registries":[]})")
      .On("POST", "/v2/registries", 201, R"({"id":"reg-1","name":"n"})")
      .On("POST", kGraphql, 200, R"({"data":{"podRentInterruptable":{"id":"p1"}}})");
  ASSERT_OK(provider_->Rent(ASpotOffer(), PrivateOptions(), kLabel));
  EXPECT_EQ(http_->body(2)["variables"]["input"]["containerRegistryAuthId"], "reg-1");
  EXPECT_THAT(http_->request(2).body, Not(HasSubstr("p4ss")));
}

TEST_F(RunpodTest, SortsTheRefusalsOfASpotMachine) {
  const auto error = [](const std::string& message, const std::string& code) {
    nlohmann::json row = {{"message", message}};
    if (!code.empty()) row["extensions"] = {{"code", code}};
    return nlohmann::json{{"errors", {row}}, {"data", {{"podRentInterruptable", nullptr}}}}.dump();
  };
  const struct {
    int status;
    std::string body;
    Code code;
  } rows[] = {
      {200, error("no machines", "SUPPLY_CONSTRAINT"), Code::kAborted},
      {200,
       error("There are no longer any instances available with the requested specifications.", ""),
       Code::kAborted},
      {200, error("Your bid is too low.", ""), Code::kAborted},
      {200, error("Your account balance is too low to rent a pod", ""), Code::kResourceExhausted},
      {400, error("Cannot query field", "GRAPHQL_VALIDATION_FAILED"), Code::kInvalidArgument},
      {401, R"({"error":{}})", Code::kUnauthenticated},
      {403, "", Code::kPermissionDenied},
      // For these a pod may have been made.
      {200, error("Something went wrong", "INTERNAL_SERVER_ERROR"), Code::kUnknown},
      {200, R"({"errors":[{"message":"x"}],"data":{"podRentInterruptable":{"id":"p1"}}})",
       Code::kUnknown},
      {200, R"({"data":{"podRentInterruptable":null}})", Code::kUnknown},
      {200, R"({"data":{"podRentInterruptable":{"id":""}}})", Code::kUnknown},
      {200, "<html>", Code::kUnknown},
      {500, "", Code::kUnknown},
      {504, "", Code::kUnknown},
  };
  for (const auto& row : rows) {
    http_->On("POST", kGraphql, row.status, row.body);
    EXPECT_THAT(provider_->Rent(ASpotOffer(), {}, kLabel), StatusIs(row.code)) << row.body;
  }
  Offer odd = ASpotOffer();
  for (const char* ref : {"SPOT-MOON|0.2|2|x", "SPOT-SECURE|0|2|x", "SPOT-SECURE|0.2|0|x",
                          "SPOT-SECURE|0.2|1|", "SPOT-SECURE|0.2|1"}) {
    odd.ref = ref;
    EXPECT_THAT(provider_->Rent(odd, {}, kLabel), StatusIs(Code::kInvalidArgument)) << ref;
  }
}

}  // namespace
}  // namespace gpuctl
