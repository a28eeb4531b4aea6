#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "provisioning/http/traced_http.h"
#include "provisioning/shadeform/shadeform_provider.h"
#include "tests/support/matchers.h"
#include "tests/support/scripted_http.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Code = absl::StatusCode;

constexpr char kLabel[] = "gpuctl-00ff12ab-0123456789ab";
constexpr char kBlob[] = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHt0";
constexpr char kTypes[] = "/v1/instances/types?available=true";
constexpr char kKeys[] = "/v1/sshkeys";
constexpr char kCreate[] = "/v1/instances/create";
constexpr char kId[] = "d290f1ee-6c54-4b01-90e6-d701748f0851";
constexpr char kInfo[] = "/v1/instances/d290f1ee-6c54-4b01-90e6-d701748f0851/info";
constexpr char kUpdate[] = "/v1/instances/d290f1ee-6c54-4b01-90e6-d701748f0851/update";
constexpr char kDelete[] = "/v1/instances/d290f1ee-6c54-4b01-90e6-d701748f0851/delete";
constexpr absl::Time kEnd = absl::FromUnixSeconds(1'800'000'000);
constexpr char kEndText[] = "2027-01-15T08:00:00Z";

// A machine with one A6000 in two regions, the first of them also as a spot one.
nlohmann::json ShadeType() {
  return nlohmann::json::parse(R"({"cloud":"hyperstack","shade_instance_type":"A6000",
      "cloud_instance_type":"gpu_1x_a6000","hourly_price":210,"deployment_type":"vm",
      "configuration":{"memory_in_gb":64,"storage_in_gb":256,"vcpus":6,"num_gpus":1,
        "gpu_type":"A6000","interconnect":"pcie","nvlink":false,"vram_per_gpu_in_gb":48,
        "os_options":["ubuntu22.04_cuda9.9_shade_os","ubuntu22.04_cuda12.2_shade_os",
                      "ubuntu22.04_cuda12.8","ubuntu22.04_shade_os"],
        "gpu_manufacturer":"nvidia"},
      "availability":[
        {"region":"canada-1","available":true,"display_name":"Toronto, Canada",
         "rental_type":"on_demand"},
        {"region":"canada-1","available":true,"display_name":"Toronto, Canada",
         "rental_type":"spot","hourly_price":"1.50"},
        {"region":"us-1","available":true,"display_name":"US, Wichita, KS"},
        {"region":"us-2","available":false,"display_name":"US, Wichita, KS"}]})");
}

nlohmann::json ShadeMachine(const std::string& status) {
  nlohmann::json row = nlohmann::json::parse(R"({"cloud":"hyperstack","region":"canada-1",
      "shade_instance_type":"A6000","cloud_instance_type":"gpu_1x_a6000","cloud_assigned_id":"c",
      "shade_cloud":true,"ip":"203.0.113.9","ssh_user":"shadeform","ssh_port":2222,
      "cost_estimate":"0.1","hourly_price":210,"created_at":"2026-03-13T20:00:00Z",
      "deleted_at":"0001-01-01T00:00:00Z",
      "configuration":{"num_gpus":1,"gpu_type":"A6000","interconnect":"pcie",
                       "vram_per_gpu_in_gb":48}})");
  row["id"] = kId;
  row["name"] = kLabel;
  row["status"] = status;
  return row;
}

std::string Said(const std::string& code, const std::string& error) {
  return nlohmann::json({{"error_code", code}, {"error", error}}).dump();
}

class ShadeformTest : public ::testing::Test {
 protected:
  Offer AnOffer(const std::string& rental = "on_demand") {
    Offer offer;
    offer.provider = "shadeform";
    offer.ref = "hyperstack|canada-1|A6000|" + rental + "|ubuntu22.04_cuda12.2_shade_os";
    offer.description = "1x RTX-A6000 in hyperstack/canada-1";
    offer.price_usd_per_hour = 2.10;
    offer.disk_bytes = 256'000'000'000;
    return offer;
  }
  RentOptions Options() {
    RentOptions options;
    options.ssh_public_key = std::string(kBlob) + " ada@laptop";
    return options;
  }
  std::string AccountKeys(const std::string& id) {
    return nlohmann::json({{"ssh_keys",
                            {{{"id", id},
                              {"name", "mine"},
                              {"public_key", std::string(kBlob) + " x"},
                              {"is_default", true}}}}})
        .dump();
  }
  absl::Status RentAnswered(int status, const std::string& body) {
    http_->On("GET", kKeys, 200, AccountKeys("key-7")).On("POST", kCreate, status, body);
    return provider_->Rent(AnOffer(), Options(), kLabel).status();
  }
  absl::StatusOr<Instance> DescribeAnswered(const nlohmann::json& row, int status = 200) {
    http_->On("GET", kInfo, status, row.is_string() ? row.get<std::string>() : row.dump());
    return provider_->Describe(kId);
  }
  std::vector<Offer> OffersOf(const std::vector<nlohmann::json>& types,
                              const Requirements& requirements = {}) {
    http_->On("GET", kTypes, 200, nlohmann::json({{"instance_types", types}}).dump());
    const auto offers = provider_->ListOffers(requirements);
    EXPECT_OK(offers);
    return offers.value_or(std::vector<Offer>());
  }
  const std::string base_ = "http://shadeform.test";
  std::shared_ptr<ScriptedHttp> http_ = std::make_shared<ScriptedHttp>(base_);
  std::unique_ptr<Provider> provider_ = MakeShadeformProvider(http_, {base_, "key-secret-1"});
};

TEST_F(ShadeformTest, OffersNameTheCloudAndCountCents) {
  const std::vector<Offer> offers = OffersOf({ShadeType()});
  ASSERT_EQ(offers.size(), 2u);
  const Offer& first = offers.front();
  EXPECT_EQ(first.ref, "hyperstack|canada-1|A6000|on_demand|ubuntu22.04_cuda12.2_shade_os");
  EXPECT_EQ(first.description, "1x RTX-A6000 in hyperstack/canada-1");
  EXPECT_DOUBLE_EQ(first.price_usd_per_hour, 2.10);
  EXPECT_EQ(first.gpu_name, "RTX-A6000");
  EXPECT_EQ(first.gpu_memory_bytes, 48LL << 30);
  EXPECT_EQ(first.region, "hyperstack/canada-1");
  EXPECT_EQ(first.place, "shadeform/hyperstack/canada-1/A6000");
  EXPECT_EQ(first.disk_bytes, 256'000'000'000);
  EXPECT_FALSE(first.spot);
  EXPECT_EQ(offers.back().place, "shadeform/hyperstack/us-1/A6000");
  EXPECT_EQ(http_->header(0, "X-API-KEY"), "key-secret-1");
  EXPECT_EQ(http_->header(0, "Authorization"), "");
}

TEST_F(ShadeformTest, SpotMachinesHaveTheirOwnPriceInDollars) {
  Requirements spot;
  spot.spot = true;
  const std::vector<Offer> offers = OffersOf({ShadeType()}, spot);
  ASSERT_EQ(offers.size(), 1u);
  EXPECT_DOUBLE_EQ(offers.front().price_usd_per_hour, 1.50);
  EXPECT_TRUE(offers.front().spot);
  EXPECT_EQ(offers.front().ref, "hyperstack|canada-1|A6000|spot|ubuntu22.04_cuda12.2_shade_os");
  for (const char* price : {"nan", "inf", "-1", "0.00", "", "cheap"}) {
    nlohmann::json type = ShadeType();
    type["availability"][1]["hourly_price"] = price;
    EXPECT_TRUE(OffersOf({type}, spot).empty()) << price;
  }
}

TEST_F(ShadeformTest, OffersWhatItCanUseOnly) {
  const auto with = [](const char* path, const nlohmann::json& value) {
    nlohmann::json type = ShadeType();
    type[nlohmann::json::json_pointer(path)] = value;
    return type;
  };
  const nlohmann::json left_out[] = {
      with("/deployment_type", "container"),
      with("/deployment_type", "baremetal"),
      with("/configuration/gpu_manufacturer", "amd"),
      with("/configuration/os_options", {"ubuntu22.04_shade_os", "cuda12.4", "cudaX_shade_os"}),
      with("/configuration/num_gpus", 0),
      with("/configuration/num_gpus", 8),
      with("/hourly_price", 0),
      with("/hourly_price", -5),
      with("/cloud", "a|b"),
      with("/availability", nlohmann::json::array()),
  };
  for (const nlohmann::json& type : left_out) EXPECT_TRUE(OffersOf({type}).empty()) << type;
}

TEST_F(ShadeformTest, ACloudsMistakeHidesNoOtherCloud) {
  nlohmann::json wrong = ShadeType();
  wrong["hourly_price"] = "dear";
  nlohmann::json torn = ShadeType();
  torn["availability"][0]["region"] = 7;
  EXPECT_EQ(OffersOf({wrong, ShadeType(), torn}).size(), 2u);
  for (const std::string& body :
       {nlohmann::json({{"instance_types", {wrong}}}).dump(), std::string("{}"), std::string("[]"),
        std::string("<html>"), std::string(R"({"instance_types":[)")}) {
    http_->On("GET", kTypes, 200, body);
    EXPECT_THAT(provider_->ListOffers({}), StatusIs(Code::kUnknown)) << body;
  }
}

TEST_F(ShadeformTest, RegionsHaveTheirCountry) {
  const auto found = [&](const std::string& shown, const std::string& asked) {
    nlohmann::json type = ShadeType();
    type["availability"] = {{{"region", "r-1"}, {"available", true}, {"display_name", shown}}};
    Requirements requirements;
    requirements.regions = {asked};
    return !OffersOf({type}, requirements).empty();
  };
  EXPECT_TRUE(found("US, Wichita, KS", "US"));
  EXPECT_FALSE(found("US, Wichita, KS", "KS"));
  EXPECT_TRUE(found("Toronto, Canada", "CA"));
  EXPECT_TRUE(found("Norway", "NO"));
  // A state is not a country.
  EXPECT_FALSE(found("Los Angeles, CA", "CA"));
  EXPECT_TRUE(found("nobody knows", "r-1"));
  EXPECT_TRUE(found("nobody knows", "hyperstack"));
  EXPECT_FALSE(found("nobody knows", "US"));
}

TEST_F(ShadeformTest, ModelsHaveTheirForm) {
  const auto model = [&](const std::string& gpu, const std::string& link, int vram) {
    nlohmann::json type = ShadeType();
    type["configuration"]["gpu_type"] = gpu;
    type["configuration"]["interconnect"] = link;
    type["configuration"]["vram_per_gpu_in_gb"] = vram;
    const std::vector<Offer> offers = OffersOf({type});
    return offers.empty() ? "" : offers[0].gpu_name + (offers[0].arm64 ? " arm64" : "");
  };
  EXPECT_EQ(model("H100", "sxm5", 80), "H100-SXM");
  EXPECT_EQ(model("H100", "pcie", 80), "H100-PCIe");
  EXPECT_EQ(model("A100_80G", "sxm4", 80), "A100-80GB");
  EXPECT_EQ(model("A100", "pcie", 40), "A100-40GB");
  EXPECT_EQ(model("RTX4090", "pcie", 24), "RTX-4090");
  EXPECT_EQ(model("GH200", "", 96), "GH200 arm64");
}

TEST_F(ShadeformTest, RentsWithLabelTagKeyScriptAndEnd) {
  http_->On("GET", kKeys, 200, AccountKeys("key-7"))
      .On("POST", kCreate, 200, nlohmann::json({{"id", kId}}).dump());
  RentOptions options = Options();
  options.start_script = "touch /tmp/started\n";
  options.env["NAME"] = "it's";
  options.host_key.private_key = "a secret that its sshd could not take";
  options.expires_at = kEnd;
  const auto instance = provider_->Rent(AnOffer(), options, kLabel);
  ASSERT_OK(instance);
  EXPECT_EQ(instance->id, kId);
  EXPECT_EQ(instance->label, kLabel);
  EXPECT_EQ(instance->state, Instance::State::kStarting);
  EXPECT_EQ(instance->ends_ms, absl::ToUnixMillis(kEnd));
  nlohmann::json body = http_->body(1);
  std::string script;
  ASSERT_TRUE(absl::Base64Unescape(
      body["launch_configuration"]["script_configuration"]["base64_script"].get<std::string>(),
      &script));
  EXPECT_THAT(script, StartsWith("#!/bin/bash\nexport NAME='it'\\''s'\n"));
  EXPECT_THAT(script, HasSubstr("touch /tmp/started\n"));
  EXPECT_THAT(script, Not(HasSubstr("a secret")));
  body.erase("launch_configuration");
  EXPECT_EQ(body, nlohmann::json({{"cloud", "hyperstack"},
                                  {"region", "canada-1"},
                                  {"shade_instance_type", "A6000"},
                                  {"shade_cloud", true},
                                  {"name", kLabel},
                                  {"os", "ubuntu22.04_cuda12.2_shade_os"},
                                  {"ssh_key_id", "key-7"},
                                  {"tags", {std::string("gpuctl-lease:") + kLabel}},
                                  {"auto_delete", {{"date_threshold", kEndText}}}}));
  EXPECT_FALSE(http_->request(1).repeatable);
  EXPECT_TRUE(http_->request(1).creates);
}

TEST_F(ShadeformTest, RegistersAKeyAndMayLoseTheRace) {
  const std::string made = nlohmann::json({{"id", kId}}).dump();
  http_->On("GET", kKeys, 200, R"({"ssh_keys":[]})")
      .On("POST", "/v1/sshkeys/add", 200, R"({"id":"key-9"})")
      .On("POST", kCreate, 200, made);
  ASSERT_OK(provider_->Rent(AnOffer(), Options(), kLabel));
  EXPECT_EQ(http_->body(1)["public_key"], kBlob);
  EXPECT_EQ(http_->body(2)["ssh_key_id"], "key-9");
  http_->On("GET", kKeys, 200, R"({"ssh_keys":[]})")
      .On("POST", "/v1/sshkeys/add", 409, Said("CONFLICT", "name must be unique"))
      .On("GET", kKeys, 200, AccountKeys("key-8"))
      .On("POST", kCreate, 200, made);
  ASSERT_OK(provider_->Rent(AnOffer(), Options(), kLabel));
  EXPECT_EQ(http_->body(6)["ssh_key_id"], "key-8");
  // The name is there with another key.
  http_->On("GET", kKeys, 200, R"({"ssh_keys":[]})")
      .On("POST", "/v1/sshkeys/add", 409, Said("", "name must be unique"))
      .On("GET", kKeys, 200, R"({"ssh_keys":[]})");
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel),
              StatusIs(Code::kInvalidArgument, HasSubstr("another one of the name")));
  for (const char* body : {"{}", R"({"id":""})", R"({"id":{}})", "<html>"}) {
    http_->On("GET", kKeys, 200, R"({"ssh_keys":[]})").On("POST", "/v1/sshkeys/add", 200, body);
    EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel), StatusIs(Code::kUnavailable))
        << body;
  }
}

TEST_F(ShadeformTest, RefusalsOfACreateSayWhatToDo) {
  const struct {
    int status;
    const char* code;
    const char* error;
    Code wanted;
  } rows[] = {
      {409, "OUT_OF_STOCK", "the type is gone", Code::kAborted},
      {409, "INSUFFICIENT_FUNDS", "Balance must be a minimum of $5", Code::kResourceExhausted},
      {409, "SOMETHING_NEW", "nobody has heard of it", Code::kAborted},
      {400, "", "os is not known", Code::kInvalidArgument},
      {401, "", "invalid key", Code::kUnauthenticated},
      {403, "", "not yours", Code::kPermissionDenied},
      {404, "", "no such cloud", Code::kInvalidArgument},
      {429, "", "slow down", Code::kUnavailable},
      {500, "", "oops", Code::kUnknown},
      {503, "", "later", Code::kUnknown},
  };
  for (const auto& row : rows) {
    const absl::Status status = RentAnswered(row.status, Said(row.code, row.error));
    EXPECT_THAT(status, StatusIs(row.wanted, HasSubstr(row.error)));
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.code));
  }
}

TEST_F(ShadeformTest, WhatMayHaveMadeAnInstanceIsUnknown) {
  for (const char* body : {"<html>", "{}", "[]", R"({"id":""})", R"({"id":7})", R"({"id":"x)"}) {
    EXPECT_THAT(RentAnswered(200, body), StatusIs(Code::kUnknown)) << body;
  }
  http_->On("GET", kKeys, 200, AccountKeys("key-7"));
  http_->Fail("POST", kCreate, absl::DeadlineExceededError("30 s"));
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel), StatusIs(Code::kDeadlineExceeded));
  http_->On("GET", kKeys, 502, "<html>");
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel), StatusIs(Code::kUnavailable));
}

TEST_F(ShadeformTest, RefusesWhatCannotWorkBeforeAsking) {
  for (const char* ref : {"nothing-of-ours", "a|b|c|d", "a||c|on_demand|os", "a|b|c|d|e|f"}) {
    Offer foreign = AnOffer();
    foreign.ref = ref;
    EXPECT_THAT(provider_->Rent(foreign, Options(), kLabel), StatusIs(Code::kInvalidArgument));
  }
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
  EXPECT_THAT(provider_->MoveExpiry("", kEnd), StatusIs(Code::kInvalidArgument));
  EXPECT_TRUE(http_->requests().empty());
}

TEST_F(ShadeformTest, AnInstanceIsWhatItsStatusSays) {
  nlohmann::json row = ShadeMachine("active");
  row["auto_delete"] = {{"date_threshold", kEndText}};
  const auto running = DescribeAnswered(row);
  ASSERT_OK(running);
  EXPECT_EQ(running->state, Instance::State::kRunning);
  EXPECT_EQ(running->address.value().host, "203.0.113.9");
  EXPECT_EQ(running->address->user, "shadeform");
  EXPECT_EQ(running->address->port, 2222);
  EXPECT_DOUBLE_EQ(running->price_usd_per_hour, 2.10);
  EXPECT_EQ(running->gpu_name, "RTX-A6000");
  EXPECT_EQ(running->gpu_count, 1);
  EXPECT_EQ(running->region, "hyperstack/canada-1");
  EXPECT_EQ(running->place, "shadeform/hyperstack/canada-1/A6000");
  EXPECT_EQ(running->ends_ms, absl::ToUnixMillis(kEnd));
  EXPECT_FALSE(running->spot);
  row["rental_terms"] = {{"rental_type", "spot"}, {"hourly_price", "1.50"}};
  EXPECT_DOUBLE_EQ(DescribeAnswered(row)->price_usd_per_hour, 1.50);
  const struct {
    const char* status;
    Instance::State state;
  } states[] = {
      {"creating", Instance::State::kStarting}, {"pending_provider", Instance::State::kStarting},
      {"pending", Instance::State::kStarting},  {"never-heard-of", Instance::State::kStarting},
      {"error", Instance::State::kFailed},      {"deleting", Instance::State::kStopping}};
  for (const auto& state : states) {
    // A machine that is not active may have any address, or none.
    for (const char* ip : {"", "-oX=y", "203.0.113.9"}) {
      nlohmann::json other = ShadeMachine(state.status);
      other["ip"] = ip;
      other["ssh_port"] = 0;
      other["ssh_user"] = "";
      other["status_details"] = "upstream said so";
      const auto described = DescribeAnswered(other);
      ASSERT_OK(described);
      EXPECT_EQ(described->state, state.state) << state.status;
      EXPECT_FALSE(described->address.has_value());
      EXPECT_EQ(described->status, std::string(state.status) + ": upstream said so");
    }
  }
}

TEST_F(ShadeformTest, AnActiveMachineMayHaveNoAddressYet) {
  const std::pair<const char*, nlohmann::json> not_yet[] = {
      {"ip", ""}, {"ip", nullptr}, {"ssh_port", 0}, {"ssh_port", nullptr}};
  for (const auto& [field, value] : not_yet) {
    nlohmann::json row = ShadeMachine("active");
    row[field] = value;
    const auto described = DescribeAnswered(row);
    ASSERT_OK(described);
    EXPECT_EQ(described->state, Instance::State::kStarting) << field;
  }
  nlohmann::json row = ShadeMachine("active");
  row["ssh_user"] = "";
  EXPECT_EQ(DescribeAnswered(row)->address.value().user, "shadeform");
  const std::pair<const char*, nlohmann::json> wrong[] = {
      {"ip", "-oX=y"}, {"ssh_user", "-l root"}, {"ssh_port", 70000}, {"ssh_port", "x"}, {"ip", 7}};
  for (const auto& [field, value] : wrong) {
    nlohmann::json bad = ShadeMachine("active");
    bad[field] = value;
    EXPECT_THAT(DescribeAnswered(bad), StatusIs(Code::kUnknown, HasSubstr(field)));
  }
}

TEST_F(ShadeformTest, OnlyAnAnswerAboutOneTellsItsEnd) {
  const auto told = [&](const nlohmann::json& auto_delete) {
    nlohmann::json row = ShadeMachine("active");
    row["auto_delete"] = auto_delete;
    const auto described = DescribeAnswered(row);
    EXPECT_OK(described) << auto_delete;
    if (!described.ok()) return std::string("?");
    return described->tells_end ? absl::StrCat(described->ends_ms) : "not told";
  };
  EXPECT_EQ(told({{"date_threshold", kEndText}}), absl::StrCat(absl::ToUnixMillis(kEnd)));
  EXPECT_EQ(told({{"date_threshold", "2027-01-15T09:00:00.5+01:00"}}),
            absl::StrCat(absl::ToUnixMillis(kEnd) + 500));
  // The market has none, or dropped it.
  EXPECT_EQ(told(nullptr), "0");
  EXPECT_EQ(told({{"spend_threshold", "3.00"}}), "0");
  EXPECT_EQ(told({{"date_threshold", ""}}), "0");
  EXPECT_EQ(told({{"date_threshold", "0001-01-01T00:00:00Z"}}), "0");
  // What cannot be read is no reason to lose sight of the machine.
  EXPECT_EQ(told({{"date_threshold", "tomorrow"}}), "not told");
  EXPECT_EQ(told({{"date_threshold", 1'800'000'000}}), "not told");
  EXPECT_EQ(told("tomorrow"), "not told");
  http_->On("GET", "/v1/instances", 200,
            nlohmann::json({{"instances", {ShadeMachine("active")}}}).dump());
  const auto listed = provider_->ListInstances();
  ASSERT_OK(listed);
  ASSERT_EQ(listed->size(), 1u);
  EXPECT_FALSE(listed->front().tells_end);
}

TEST_F(ShadeformTest, MovesTheEnd) {
  http_->On("POST", kUpdate, 200, "");
  EXPECT_OK(provider_->MoveExpiry(kId, kEnd));
  EXPECT_EQ(http_->body(0), nlohmann::json({{"auto_delete", {{"date_threshold", kEndText}}}}));
  EXPECT_TRUE(http_->request(0).repeatable);
  http_->On("POST", kUpdate, 404, Said("NOT_FOUND", "no such instance"));
  EXPECT_THAT(provider_->MoveExpiry(kId, kEnd), StatusIs(Code::kNotFound));
  http_->On("POST", kUpdate, 409, Said("CONFLICT", "it is pending"));
  EXPECT_THAT(provider_->MoveExpiry(kId, kEnd), StatusIs(Code::kUnavailable));
  EXPECT_TRUE(provider_->traits().expiry.at_create);
  EXPECT_TRUE(provider_->traits().expiry.can_move);
  EXPECT_FALSE(provider_->traits().self_release());
}

TEST_F(ShadeformTest, GoneIsWhatTheMarketSaysIsGone) {
  EXPECT_THAT(DescribeAnswered(ShadeMachine("deleted")), StatusIs(Code::kNotFound));
  EXPECT_THAT(DescribeAnswered(Said("NOT_FOUND", "no such instance"), 404),
              StatusIs(Code::kNotFound));
  EXPECT_THAT(DescribeAnswered("<html>", 404), StatusIs(Code::kUnknown));
  EXPECT_THAT(DescribeAnswered("{}", 404), StatusIs(Code::kUnknown));
  nlohmann::json other = ShadeMachine("deleted");
  other["id"] = "another";
  EXPECT_THAT(DescribeAnswered(other), StatusIs(Code::kUnknown));
  http_->On("POST", kDelete, 200, "");
  EXPECT_OK(provider_->Terminate(kId));
  http_->On("POST", kDelete, 404, Said("NOT_FOUND", "no such instance"));
  EXPECT_THAT(provider_->Terminate(kId), StatusIs(Code::kNotFound));
  http_->On("POST", kDelete, 409, Said("CONFLICT", "it is pending"));
  EXPECT_THAT(provider_->Terminate(kId), StatusIs(Code::kUnavailable));
  http_->On("POST", kDelete, 404, "<html>");
  EXPECT_THAT(provider_->Terminate(kId), StatusIs(Code::kUnknown));
  // An id that leads elsewhere stays one part of the path.
  http_->On("GET", "/v1/instances/..%2F..%2Fsshkeys/info", 404, Said("NOT_FOUND", "no"));
  EXPECT_THAT(provider_->Describe("../../sshkeys"), StatusIs(Code::kNotFound));
}

TEST_F(ShadeformTest, ListsAllAndFindsARenamedOne) {
  nlohmann::json renamed = ShadeMachine("active");
  renamed["id"] = "second";
  renamed["name"] = "my-box";
  renamed["tags"] = {"mine", std::string("gpuctl-lease:") + kLabel};
  nlohmann::json gone = ShadeMachine("deleted");
  gone["id"] = "third";
  http_->On("GET", "/v1/instances", 200,
            nlohmann::json({{"instances", {ShadeMachine("deleting"), renamed, gone}}}).dump());
  const auto all = provider_->ListInstances();
  ASSERT_OK(all);
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ(all->at(0).state, Instance::State::kStopping);
  EXPECT_EQ(all->at(1).label, kLabel);
  for (const std::string& body :
       {std::string("{}"), std::string("[]"), std::string(R"({"instances":{}})"),
        std::string("<html>"), std::string(R"({"instances":null})"),
        nlohmann::json({{"instances", {ShadeMachine("active"), ShadeMachine("active")}}}).dump(),
        nlohmann::json({{"instances", nlohmann::json::array()}, {"next_page", "2"}}).dump()}) {
    http_->On("GET", "/v1/instances", 200, body);
    EXPECT_FALSE(provider_->ListInstances().ok()) << body;
  }
}

// Answers a request with what it was asked, as a proxy does that reports what it refused.
class EchoHttp : public Http {
 public:
  absl::StatusOr<HttpResponse> Send(const HttpRequest& request) override {
    HttpResponse response;
    response.status = 409;
    std::string said;
    for (const auto& [name, value] : request.headers) absl::StrAppend(&said, name, value, " ");
    response.body = nlohmann::json({{"error", said + request.body},
                                    {"envs", {{{"name", "TOKEN"}, {"value", "hf-secret"}}}},
                                    {"base64_script", "c2VjcmV0LXNjcmlwdA=="}})
                        .dump();
    return response;
  }
};

TEST(ShadeformTraceTest, NeitherKeyNorScriptIsShown) {
  std::string trace;
  Clock& clock = Clock::Real();
  std::shared_ptr<Http> http =
      MakeTracedHttp(std::make_unique<EchoHttp>(), clock,
                     [&trace](absl::string_view line) { absl::StrAppend(&trace, line, "\n"); });
  HttpRequest request;
  request.method = "POST";
  request.url = "http://shadeform.test/v1/instances/create";
  request.headers = {{"X-API-KEY", "key-secret-1"}};
  request.body =
      nlohmann::json({{"envs", {{{"name", "TOKEN"}, {"value", "hf-secret"}}}},
                      {"launch_configuration",
                       {{"script_configuration", {{"base64_script", "c2VjcmV0LXNjcmlwdA=="}}}}}})
          .dump();
  ASSERT_OK(http->Send(request));
  EXPECT_THAT(trace, HasSubstr("409"));
  EXPECT_THAT(trace, HasSubstr("[hidden]"));
  for (const char* secret : {"key-secret-1", "hf-secret", "c2VjcmV0"}) {
    EXPECT_THAT(trace, Not(HasSubstr(secret)));
  }
}

}  // namespace
}  // namespace gpuctl
