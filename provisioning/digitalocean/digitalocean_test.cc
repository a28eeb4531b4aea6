#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "provisioning/digitalocean/digitalocean_provider.h"
#include "tests/support/matchers.h"
#include "tests/support/scripted_http.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Code = absl::StatusCode;

constexpr char kLabel[] = "gpuctl-00ff12ab-0123456789ab";
constexpr char kBlob[] = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHt0";
constexpr char kSizes[] = "/v2/sizes?per_page=200";
constexpr char kKeys[] = "/v2/account/keys?per_page=200";
constexpr char kGpuList[] = "/v2/droplets?per_page=200&type=gpus";
constexpr char kList[] = "/v2/droplets?per_page=200";

std::string Size(const std::string& slug, const std::string& model, int count, int vram, double usd,
                 const std::string& regions, const std::string& more = "") {
  return absl::StrCat(R"({"slug":")", slug, R"(","memory":1,"vcpus":8,"disk":720,"transfer":10.0,)",
                      R"("price_monthly":1.0,"price_hourly":)", usd, R"(,"regions":)", regions,
                      R"(,"available":true,"description":"GPU",)", more, R"("gpu_info":{"count":)",
                      count, R"(,"model":")", model, R"(","vram":{"amount":)", vram,
                      R"(,"unit":"gib"}}})");
}

std::string Sizes(const std::string& rows, const std::string& next = "") {
  const std::string pages = next.empty() ? "{}" : R"({"next":")" + next + R"("})";
  return R"({"sizes":[)" + rows + R"(],"links":{"pages":)" + pages + R"(},"meta":{"total":9}})";
}

std::string Droplet(const std::string& id, const std::string& status, const std::string& more = "",
                    const std::string& name = kLabel) {
  return R"({"id":)" + id + R"(,"name":")" + name + R"(","status":")" + status +
         R"json(","created_at":"2026-03-13T20:00:00Z","size_slug":"gpu-h100x1-80gb",)json" + more +
         R"json("size":{"slug":"gpu-h100x1-80gb","price_hourly":3.39},
             "gpu_info":{"count":1,"model":"nvidia_h100","vram":{"amount":80,"unit":"gib"}},
             "region":{"slug":"nyc2"}})json";
}
constexpr char kNetworks[] =
    R"("networks":{"v4":[{"ip_address":"10.0.0.2","type":"private"},
                         {"ip_address":"203.0.113.9","type":"public"}]},)";

std::string Listed(const std::string& rows) {
  return R"({"droplets":[)" + rows + R"(],"links":{},"meta":{"total":1}})";
}

std::string Said(const std::string& id, const std::string& message) {
  return R"({"id":")" + id + R"(","message":")" + message + R"(","request_id":"r"})";
}

class DigitaloceanTest : public ::testing::Test {
 protected:
  Offer AnOffer() {
    Offer offer;
    offer.provider = "digitalocean";
    offer.ref = "1/gpu-h100x1-80gb/nyc2";
    offer.description = "1x H100 in nyc2";
    offer.price_usd_per_hour = 3.39;
    offer.disk_bytes = 720'000'000'000;
    return offer;
  }
  RentOptions Options() {
    RentOptions options;
    options.ssh_public_key = std::string(kBlob) + " ada@laptop";
    return options;
  }
  void OnKeys() {
    http_->On("GET", kKeys, 200,
              R"({"ssh_keys":[{"id":77,"fingerprint":"f","name":"mine","public_key":")" +
                  std::string(kBlob) + R"( x"}],"links":{},"meta":{"total":1}})");
  }
  absl::Status RentAnswered(int status, const std::string& body) {
    OnKeys();
    http_->On("POST", "/v2/droplets", status, body);
    return provider_->Rent(AnOffer(), Options(), kLabel).status();
  }
  absl::StatusOr<Instance> DescribeAnswered(int status, const std::string& body) {
    http_->On("GET", "/v2/droplets/7", status, body);
    return provider_->Describe("7");
  }
  const std::string base_ = "http://digitalocean.test";
  std::shared_ptr<ScriptedHttp> http_ = std::make_shared<ScriptedHttp>(base_);
  std::unique_ptr<Provider> provider_ = MakeDigitaloceanProvider(http_, {base_, "key-1"});
};

TEST_F(DigitaloceanTest, OffersEachSizeInEachRegionOnAllPages) {
  http_
      ->On("GET", kSizes, 200,
           Sizes(Size("gpu-h100x8-640gb", "nvidia_h100", 8, 640, 23.92, R"(["nyc2"])") + "," +
                     Size("amd", "amd_mi300x", 1, 192, 1.99, R"(["atl1"])") + "," +
                     R"({"slug":"s-1vcpu-1gb","price_hourly":0.01,"regions":["nyc1"]})",
                 "https://api.digitalocean.com/v2/sizes?page=2&per_page=200"))
      .On("GET", "/v2/sizes?page=2&per_page=200", 200,
          Sizes(Size("gpu-h100x1-80gb", "nvidia_h100", 1, 80, 3.39, R"(["nyc2","ams3"])") + "," +
                Size("gone", "nvidia_h100", 1, 80, 1, "[]")));
  const auto offers = provider_->ListOffers({});
  ASSERT_OK(offers);
  ASSERT_EQ(offers->size(), 2u);  // nobody asked for eight
  const Offer& first = offers->front();
  EXPECT_EQ(first.ref, "1/gpu-h100x1-80gb/ams3");
  EXPECT_EQ(first.gpu_name, "H100");
  EXPECT_EQ(first.gpu_memory_bytes, 80LL << 30);
  EXPECT_DOUBLE_EQ(first.price_usd_per_hour, 3.39);
  EXPECT_EQ(first.place, "digitalocean/gpu-h100x1-80gb/ams3");
  EXPECT_EQ(first.disk_bytes, 720'000'000'000);
}

// Whether a size tells the memory of one GPU or of all is not published.
TEST_F(DigitaloceanTest, TheMemoryOfOneGpuIsTheLeastThatIsSaid) {
  for (const int said : {640, 80}) {
    http_->On("GET", kSizes, 200,
              Sizes(Size("x1", "nvidia_h100", 1, 80, 3.39, R"(["nyc2"])") + "," +
                    Size("x8", "nvidia_h100", 8, said, 23.92, R"(["nyc2"])")));
    Requirements requirements;
    requirements.gpus = {{"H100", 8, 0, 0}};
    const auto offers = provider_->ListOffers(requirements);
    ASSERT_OK(offers);
    ASSERT_EQ(offers->size(), 1u);
    EXPECT_EQ(offers->front().gpu_memory_bytes, 80LL << 30);
  }
  http_->On("GET", kSizes, 200, Sizes(Size("x8", "nvidia_h100", 8, 640, 23.92, R"(["nyc2"])")));
  Requirements alone;
  alone.gpus = {{"", 8, 70'000'000'000, 90'000'000'000}};
  EXPECT_EQ(provider_->ListOffers(alone)->size(), 1u);
}

TEST_F(DigitaloceanTest, OffersWhatIsAskedForOnly) {
  const auto count = [&](const Requirements& requirements) {
    http_->On("GET", kSizes, 200,
              Sizes(Size("a", "nvidia_rtx4000_ada", 1, 20, 0.76, R"(["tor1","nyc2"])") + "," +
                    Size("b", "nvidia_l40s", 1, 48, 1.57, R"(["ams3","xyz9"])")));
    const auto offers = provider_->ListOffers(requirements);
    EXPECT_OK(offers);
    return offers.ok() ? offers->size() : 99;
  };
  Requirements requirements;
  requirements.gpus = {{"RTX-4000-Ada", 1, 0, 0}};
  EXPECT_EQ(count(requirements), 2u);
  requirements.regions = {"CA"};
  EXPECT_EQ(count(requirements), 1u);
  requirements.regions = {"nyc2"};
  EXPECT_EQ(count(requirements), 1u);
  requirements = {};
  requirements.regions = {"EU"};
  EXPECT_EQ(count(requirements), 1u);
  requirements = {};
  requirements.disk_bytes = 900'000'000'000;
  EXPECT_EQ(count(requirements), 0u);
  requirements = {};
  requirements.spot = true;
  EXPECT_TRUE(provider_->ListOffers(requirements)->empty());
}

TEST_F(DigitaloceanTest, RentsWithLabelTagKeyAndScript) {
  OnKeys();
  http_->On("POST", "/v2/droplets", 202, R"({"droplet":)" + Droplet("9", "new") + "}");
  RentOptions options = Options();
  options.start_script = "touch /tmp/started\n";
  options.env["NAME"] = "it's";
  const auto instance = provider_->Rent(AnOffer(), options, kLabel);
  ASSERT_OK(instance);
  EXPECT_EQ(instance->id, "9");
  EXPECT_EQ(instance->label, kLabel);
  EXPECT_EQ(instance->state, Instance::State::kStarting);
  const nlohmann::json body = http_->body(1);
  EXPECT_EQ(body["name"], kLabel);
  EXPECT_EQ(body["size"], "gpu-h100x1-80gb");
  EXPECT_EQ(body["region"], "nyc2");
  EXPECT_EQ(body["image"], "gpu-h100x1-base");
  EXPECT_EQ(body["ssh_keys"], nlohmann::json::array({77}));
  EXPECT_EQ(body["tags"], nlohmann::json::array({"gpuctl", std::string("gpuctl-lease:") + kLabel}));
  EXPECT_THAT(body["user_data"].get<std::string>(), StartsWith("#!/bin/bash\n"));
  EXPECT_THAT(body["user_data"].get<std::string>(), HasSubstr("touch /tmp/started\n"));
  EXPECT_FALSE(http_->request(1).repeatable);
  EXPECT_TRUE(http_->request(1).creates);
}

TEST_F(DigitaloceanTest, RegistersAKeyAndMayLoseTheRace) {
  const std::string none = R"({"ssh_keys":[],"links":{},"meta":{"total":0}})";
  http_->On("GET", kKeys, 200, none)
      .On("POST", "/v2/account/keys", 201, R"({"ssh_key":{"id":5,"name":"n","public_key":"k"}})")
      .On("POST", "/v2/droplets", 202, R"({"droplet":)" + Droplet("9", "new") + "}");
  ASSERT_OK(provider_->Rent(AnOffer(), Options(), kLabel));
  EXPECT_EQ(http_->body(2)["ssh_keys"], nlohmann::json::array({5}));
  http_->On("GET", kKeys, 200, none)
      .On("POST", "/v2/account/keys", 422,
          Said("unprocessable_entity", "SSH Key is already in use on your account"));
  OnKeys();
  http_->On("POST", "/v2/droplets", 202, R"({"droplet":)" + Droplet("9", "new") + "}");
  ASSERT_OK(provider_->Rent(AnOffer(), Options(), kLabel));
  EXPECT_EQ(http_->body(6)["ssh_keys"], nlohmann::json::array({77}));
}

TEST_F(DigitaloceanTest, RefusalsOfACreateSayWhatToDo) {
  const struct {
    int status;
    const char* id;
    const char* message;
    Code wanted;
  } rows[] = {
      {422, "unprocessable_entity", "Size is not available in this region.", Code::kAborted},
      {422, "unprocessable_entity", "Region is not available", Code::kAborted},
      {422, "unprocessable_entity", "will exceed your droplet limit", Code::kResourceExhausted},
      {422, "unprocessable_entity", "Name is invalid", Code::kInvalidArgument},
      {401, "Unauthorized", "Unable to authenticate you", Code::kUnauthenticated},
      {402, "payment_required", "add a payment method", Code::kResourceExhausted},
      {403, "forbidden", "You are not authorized", Code::kPermissionDenied},
      {404, "not_found", "no such route", Code::kInvalidArgument},
      {429, "too_many_requests", "API rate limit exceeded.", Code::kUnavailable},
      {500, "server_error", "Unexpected server-side error", Code::kUnknown},
      {503, "server_error", "Service unavailable", Code::kUnknown},
  };
  for (const auto& row : rows) {
    EXPECT_THAT(RentAnswered(row.status, Said(row.id, row.message)),
                StatusIs(row.wanted, HasSubstr(row.message)));
  }
}

TEST_F(DigitaloceanTest, WhatMayHaveMadeADropletIsUnknown) {
  for (const char* body : {"<html>", "{}", R"({"droplet":{}})", R"({"droplet":{"id":"x"}})"}) {
    EXPECT_THAT(RentAnswered(202, body), StatusIs(Code::kUnknown)) << body;
  }
  OnKeys();
  http_->Fail("POST", "/v2/droplets", absl::DeadlineExceededError("30 s"));
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel), StatusIs(Code::kDeadlineExceeded));
  http_->On("GET", kKeys, 502, "<html>");
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel), StatusIs(Code::kUnavailable));
}

TEST_F(DigitaloceanTest, RefusesWhatCannotWorkBeforeAsking) {
  Offer foreign = AnOffer();
  foreign.ref = "nothing-of-ours";
  EXPECT_THAT(provider_->Rent(foreign, Options(), kLabel), StatusIs(Code::kInvalidArgument));
  RentOptions options = Options();
  options.image = "ubuntu";
  EXPECT_THAT(provider_->Rent(AnOffer(), options, kLabel), StatusIs(Code::kInvalidArgument));
  options = Options();
  options.volume_id = "v";
  EXPECT_THAT(provider_->Rent(AnOffer(), options, kLabel), StatusIs(Code::kInvalidArgument));
  options = Options();
  options.disk_bytes = 5000LL << 30;
  EXPECT_THAT(provider_->Rent(AnOffer(), options, kLabel), StatusIs(Code::kInvalidArgument));
  options = Options();
  options.start_script = std::string(65 * 1024, 'x');
  EXPECT_THAT(provider_->Rent(AnOffer(), options, kLabel), StatusIs(Code::kInvalidArgument));
  EXPECT_TRUE(http_->requests().empty());
}

TEST_F(DigitaloceanTest, ADropletIsWhatItsStatusSays) {
  const auto running =
      DescribeAnswered(200, R"({"droplet":)" + Droplet("7", "active", kNetworks) + "}");
  ASSERT_OK(running);
  EXPECT_EQ(running->state, Instance::State::kRunning);
  EXPECT_EQ(running->address.value().host, "203.0.113.9");
  EXPECT_EQ(running->address->user, "root");
  EXPECT_EQ(running->address->port, 22);
  EXPECT_DOUBLE_EQ(running->price_usd_per_hour, 3.39);
  EXPECT_EQ(running->gpu_name, "H100");
  EXPECT_EQ(running->gpu_count, 1);
  EXPECT_EQ(running->place, "digitalocean/gpu-h100x1-80gb/nyc2");
  EXPECT_EQ(DescribeAnswered(200, R"({"droplet":)" + Droplet("7", "active") + "}")->state,
            Instance::State::kStarting);
  EXPECT_EQ(DescribeAnswered(200, R"({"droplet":)" + Droplet("7", "new", kNetworks) + "}")->state,
            Instance::State::kStarting);
  // It bills on.
  for (const char* off : {"off", "archive"}) {
    const auto row = DescribeAnswered(200, R"({"droplet":)" + Droplet("7", off, kNetworks) + "}");
    ASSERT_OK(row);
    EXPECT_EQ(row->state, Instance::State::kFailed);
    EXPECT_DOUBLE_EQ(row->price_usd_per_hour, 3.39);
  }
  EXPECT_THAT(
      DescribeAnswered(200, R"({"droplet":)" +
                                Droplet("7", "active", R"("networks":{"v4":[{"type":"public",
                                    "ip_address":"-oX=y"}]},)") +
                                "}"),
      StatusIs(Code::kUnknown, HasSubstr("is no address")));
}

TEST_F(DigitaloceanTest, GoneIsWhatTheMarketSaysIsGone) {
  EXPECT_THAT(DescribeAnswered(404, Said("not_found", "could not be found")),
              StatusIs(Code::kNotFound));
  EXPECT_THAT(DescribeAnswered(404, "<html>"), StatusIs(Code::kUnknown));
  EXPECT_THAT(DescribeAnswered(200, R"({"droplet":)" + Droplet("8", "off") + "}"),
              StatusIs(Code::kUnknown));
  EXPECT_THAT(provider_->Describe("x"), StatusIs(Code::kNotFound));
  http_->On("DELETE", "/v2/droplets/7", 204, "");
  EXPECT_OK(provider_->Terminate("7"));
  http_->On("DELETE", "/v2/droplets/7", 404, Said("not_found", "could not be found"));
  EXPECT_THAT(provider_->Terminate("7"), StatusIs(Code::kNotFound));
  http_->On("DELETE", "/v2/droplets/7", 422,
            Said("unprocessable_entity", "Droplet already has a pending event."));
  EXPECT_THAT(provider_->Terminate("7"), StatusIs(Code::kUnavailable));
  http_->On("DELETE", "/v2/droplets/7", 404, "<html>");
  EXPECT_THAT(provider_->Terminate("7"), StatusIs(Code::kUnknown));
}

TEST_F(DigitaloceanTest, ListsBothListsAndNothingTwice) {
  const std::string renamed = Droplet(
      "2", "active",
      kNetworks + std::string(R"("tags":["gpuctl","gpuctl-lease:)") + kLabel + R"("],)", "my-box");
  http_->On("GET", kGpuList, 200, Listed(Droplet("1", "new") + "," + renamed))
      .On("GET", kList, 200, Listed(Droplet("3", "off", "", "web") + "," + renamed));
  const auto all = provider_->ListInstances();
  ASSERT_OK(all);
  ASSERT_EQ(all->size(), 3u);
  EXPECT_EQ(all->at(1).label, kLabel);
  EXPECT_EQ(all->at(2).label, "web");
  // One list alone is not the whole.
  http_->On("GET", kGpuList, 200, Listed("")).On("GET", kList, 500, "{}");
  EXPECT_THAT(provider_->ListInstances(), StatusIs(Code::kUnavailable));
  for (const char* body : {"{}", "[]", R"({"droplets":{}})", "<html>"}) {
    http_->On("GET", kGpuList, 200, body);
    EXPECT_FALSE(provider_->ListInstances().ok()) << body;
  }
}

TEST_F(DigitaloceanTest, TellsTheAccount) {
  http_->On("GET", "/v2/account", 200, R"({"account":{"uuid":"u-1","status":"active"}})");
  EXPECT_EQ(provider_->AccountId().value(), "u-1");
  http_->On("GET", "/v2/account", 200, R"({"account":{}})");
  EXPECT_THAT(provider_->AccountId(), StatusIs(Code::kUnknown));
  EXPECT_FALSE(provider_->traits().self_release());
}

}  // namespace
}  // namespace gpuctl
