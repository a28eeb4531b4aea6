#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "provisioning/lambda/lambda_api.h"
#include "provisioning/lambda/lambda_provider.h"
#include "provisioning/market/user_data.h"
#include "tests/support/matchers.h"
#include "tests/support/scripted_http.h"
#include "tests/support/shared_material.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Code = absl::StatusCode;

constexpr char kSpec[] = "providers/lambda/cloud-api-1.10.0.openapi.json";
constexpr char kLabel[] = "gpuctl-00ff12ab-0123456789ab";
constexpr char kBlob[] = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHt0";
constexpr char kLaunch[] = "/api/v1/instance-operations/launch";
constexpr char kTerminate[] = "/api/v1/instance-operations/terminate";
constexpr char kKeys[] = "/api/v1/ssh-keys";

constexpr char kTypes[] = R"json({"data":{
 "gpu_1x_a10":{"instance_type":{"name":"gpu_1x_a10","description":"1x A10 (24 GB PCIe)",
  "gpu_description":"A10 (24 GB PCIe)","price_cents_per_hour":75,
  "specs":{"vcpus":30,"memory_gib":200,"storage_gib":1400,"gpus":1}},
  "regions_with_capacity_available":[{"name":"us-west-1","description":"California, USA"},
   {"name":"europe-central-1","description":"Frankfurt, Germany"}]},
 "gpu_1x_gh200":{"instance_type":{"name":"gpu_1x_gh200","description":"1x GH200 (96 GB)",
  "gpu_description":"GH200 (96 GB)","price_cents_per_hour":149,
  "specs":{"vcpus":64,"memory_gib":432,"storage_gib":4096,"gpus":1}},
  "regions_with_capacity_available":[{"name":"us-east-3","description":"Washington DC, USA"}]},
 "gpu_8x_h100_sxm5":{"instance_type":{"name":"gpu_8x_h100_sxm5",
  "description":"8x H100 (80 GB SXM5)","gpu_description":"H100 (80 GB SXM5)",
  "price_cents_per_hour":2392,"specs":{"vcpus":208,"memory_gib":1800,"storage_gib":22528,"gpus":8}},
  "regions_with_capacity_available":[]},
 "cpu_4x_general":{"instance_type":{"name":"cpu_4x_general","description":"4x CPU",
  "gpu_description":"N/A","price_cents_per_hour":10,
  "specs":{"vcpus":4,"memory_gib":16,"storage_gib":512,"gpus":0}},
  "regions_with_capacity_available":[{"name":"us-west-1","description":"California, USA"}]}}})json";

std::string Row(const std::string& id, const std::string& status, const std::string& more) {
  return R"({"id":")" + id + R"(","name":")" + kLabel + R"(","status":")" + status + R"(",)" +
         more + R"json("ssh_key_names":["k"],"file_system_names":[],"actions":{},
    "region":{"name":"us-west-1","description":"California, USA"},
    "instance_type":{"name":"gpu_1x_a10","description":"1x A10 (24 GB PCIe)",
     "gpu_description":"A10 (24 GB PCIe)","price_cents_per_hour":75,
     "specs":{"vcpus":30,"memory_gib":200,"storage_gib":1400,"gpus":1}}})json";
}

std::string Error(const std::string& code) {
  return R"({"error":{"code":")" + code + R"(","message":"words of )" + code +
         R"(","suggestion":"Try later."}})";
}

std::string Keys(const std::string& name, const std::string& key) {
  return R"({"data":[{"id":"1","name":")" + name + R"(","public_key":")" + key + R"("}]})";
}

class LambdaTest : public ::testing::Test {
 protected:
  Offer AnOffer() {
    Offer offer;
    offer.provider = "lambda";
    offer.ref = "gpu_1x_a10/us-west-1";
    offer.description = "1x A10";
    offer.price_usd_per_hour = 0.75;
    offer.disk_bytes = 1400LL << 30;
    return offer;
  }
  RentOptions Options() {
    RentOptions options;
    options.ssh_public_key = std::string(kBlob) + " ada@laptop";
    return options;
  }
  absl::Status RentAnswered(int status, const std::string& body) {
    http_->On("GET", kKeys, 200, Keys("mine", kBlob)).On("POST", kLaunch, status, body);
    return provider_->Rent(AnOffer(), Options(), kLabel).status();
  }
  absl::Status DescribeAnswered(int status, const std::string& body) {
    http_->On("GET", "/api/v1/instances/i1", status, body);
    return provider_->Describe("i1").status();
  }
  const std::string base_ = "http://lambda.test";
  std::shared_ptr<ScriptedHttp> http_ = std::make_shared<ScriptedHttp>(base_);
  std::unique_ptr<Provider> provider_ = MakeLambdaProvider(http_, {base_, "key-1"});
};

// Returns an object of a schema, made from the examples of its fields.
nlohmann::json ExampleOf(const nlohmann::json& spec, nlohmann::json schema) {
  if (schema.contains("$ref")) {
    const std::string pointer = schema["$ref"].get<std::string>().substr(1);
    schema = spec.at(nlohmann::json::json_pointer(pointer));
  }
  if (schema.contains("examples")) return schema["examples"][0];
  if (schema.contains("const")) return schema["const"];
  if (schema.contains("enum")) return schema["enum"][0];
  if (schema.value("type", "") == "array") {
    return nlohmann::json::array({ExampleOf(spec, schema["items"])});
  }
  if (schema.value("type", "") == "object") {
    nlohmann::json object = nlohmann::json::object();
    const nlohmann::json fields = schema.value("properties", nlohmann::json::object());
    for (const auto& field : fields.items()) {
      object[field.key()] = ExampleOf(spec, field.value());
    }
    return object;
  }
  return schema.value("type", "") == "boolean" ? nlohmann::json(true) : nlohmann::json("text");
}

TEST_F(LambdaTest, ReadsTheDescriptionsExamples) {
  GPUCTL_SHARED_OR_SKIP(spec, kSpec);
  const nlohmann::json& schemas = spec["components"]["schemas"];
  nlohmann::json row = ExampleOf(spec, schemas["Instance"]);
  const std::string id = "0920582c7ff041399e34823a0be62549";
  http_->On("GET", "/api/v1/instances/" + id, 200, nlohmann::json{{"data", row}}.dump());
  auto instance = provider_->Describe(id);
  ASSERT_OK(instance);
  EXPECT_EQ(instance->id, id);
  EXPECT_EQ(instance->label, "My Instance");
  EXPECT_EQ(instance->status, "booting");
  EXPECT_EQ(instance->place, "lambda/gpu_8x_h100_sxm5gdr/" + instance->region);
  EXPECT_DOUBLE_EQ(instance->price_usd_per_hour, 35.92);
  EXPECT_EQ(instance->gpu_count, 8);
  row["status"] = "active";
  http_->On("GET", "/api/v1/instances/" + id, 200, nlohmann::json{{"data", row}}.dump());
  instance = provider_->Describe(id);
  ASSERT_OK(instance);
  EXPECT_EQ(instance->address.value().host, "198.51.100.2");
  const nlohmann::json error = ExampleOf(spec, schemas["ApiErrorInsufficientCapacity"]);
  EXPECT_EQ(ParseLambdaError(nlohmann::json{{"error", error}}.dump()).code,
            "instance-operations/launch/insufficient-capacity");
  EXPECT_EQ(LambdaGpuMemoryBytes("H100 (80 GB SXM5)"), 80'000'000'000);
}

TEST_F(LambdaTest, NamesTheFieldThatIsWrong) {
  http_->On("GET", "/api/v1/instances", 200, R"({"data":[{"status":"active"}]})");
  EXPECT_THAT(provider_->ListInstances(),
              StatusIs(Code::kUnknown, HasSubstr("field id of instance is missing")));
  http_->On("GET", "/api/v1/instances", 200, R"({"data":null})");
  EXPECT_THAT(provider_->ListInstances(), StatusIs(Code::kUnknown));
  EXPECT_THAT(DescribeAnswered(200, R"({"data":{"id":"i1","status":"active","ip":"-x"}})"),
              StatusIs(Code::kUnknown, HasSubstr("is no address")));
  EXPECT_FALSE(ParseLambdaLaunch(R"({"data":{"instance_ids":[1]}})").ok());
  EXPECT_EQ(ParseLambdaError("<html>").code, "");
  EXPECT_EQ(LambdaGpuMemoryBytes("N/A"), 0);
}

TEST_F(LambdaTest, OffersEachTypeInEachRegionWithRoom) {
  http_->On("GET", "/api/v1/instance-types", 200, kTypes);
  const auto offers = provider_->ListOffers({});
  ASSERT_OK(offers);
  ASSERT_EQ(offers->size(), 3u);
  const Offer& a10 = offers->at(1);
  EXPECT_EQ(a10.ref, "gpu_1x_a10/us-west-1");
  EXPECT_DOUBLE_EQ(a10.price_usd_per_hour, 0.75);
  EXPECT_EQ(a10.gpu_name, "A10");
  EXPECT_EQ(a10.gpu_count, 1);
  EXPECT_EQ(a10.gpu_memory_bytes, 24'000'000'000);
  EXPECT_EQ(a10.region, "us-west-1");
  EXPECT_EQ(a10.place, "lambda/gpu_1x_a10/us-west-1");
  EXPECT_EQ(a10.disk_bytes, 1400LL << 30);
  EXPECT_EQ(offers->at(2).gpu_name, "GH200");
  EXPECT_THAT(offers->at(2).description, HasSubstr("arm64"));
}

TEST_F(LambdaTest, OffersWhatIsAskedForOnly) {
  const auto count = [&](const Requirements& requirements) {
    http_->On("GET", "/api/v1/instance-types", 200, kTypes);
    const auto offers = provider_->ListOffers(requirements);
    EXPECT_OK(offers);
    return offers.ok() ? offers->size() : 99;
  };
  Requirements requirements;
  requirements.gpus = {{"A10", 1, 0, 0}};
  EXPECT_EQ(count(requirements), 2u);
  requirements.regions = {"EU"};
  EXPECT_EQ(count(requirements), 1u);
  requirements.regions = {"us-west-1"};
  EXPECT_EQ(count(requirements), 1u);
  requirements.regions = {"JP"};
  EXPECT_EQ(count(requirements), 0u);
  requirements = {};
  requirements.disk_bytes = 2000LL << 30;
  EXPECT_EQ(count(requirements), 1u);
  requirements = {};
  requirements.max_price_usd_per_hour = 0.8;
  EXPECT_EQ(count(requirements), 2u);
  requirements = {};
  requirements.gpus = {{"", 1, 80'000'000'000, 0}};
  EXPECT_EQ(count(requirements), 1u);
  requirements.spot = true;
  EXPECT_TRUE(provider_->ListOffers(requirements)->empty());
}

TEST_F(LambdaTest, ListsFileSystems) {
  http_->On("GET", "/api/v1/file-systems", 200, R"({"data":[{"id":"fs-1","name":"my-files",
    "mount_point":"/lambda/nfs/my-files","created":"2026-01-01T00:00:00Z","is_in_use":true,
    "region":{"name":"us-west-1","description":"California, USA"},"bytes_used":5000000000},
    {"id":"fs-2","name":"other","region":{"name":"us-east-1"}}]})");
  const auto volumes = provider_->ListVolumes();
  ASSERT_OK(volumes);
  ASSERT_EQ(volumes->size(), 2u);
  const Volume& first = volumes->front();
  EXPECT_EQ(first.provider, "lambda");
  EXPECT_EQ(first.id, "fs-1");
  EXPECT_EQ(first.name, "my-files");
  EXPECT_EQ(first.size_bytes, 0);
  EXPECT_EQ(first.used_bytes, 5'000'000'000);
  EXPECT_EQ(first.region, "us-west-1");
  EXPECT_EQ(first.mount_path, "/lambda/nfs/my-files");
  EXPECT_NEAR(first.usd_per_month.value(), 1.0, 1e-9);
  EXPECT_TRUE(first.in_use.value());
  EXPECT_FALSE(volumes->at(1).usd_per_month.has_value());
  http_->On("GET", "/api/v1/file-systems", 200, R"({"data":[{"id":"fs-1","region":null}]})");
  EXPECT_THAT(provider_->ListVolumes(), StatusIs(Code::kUnknown));
}

TEST_F(LambdaTest, OffersTheRegionOfTheFileSystem) {
  Requirements requirements;
  requirements.volume.emplace();
  requirements.volume->provider = "lambda";
  requirements.volume->region = "us-west-1";
  http_->On("GET", "/api/v1/instance-types", 200, kTypes);
  const auto offers = provider_->ListOffers(requirements);
  ASSERT_OK(offers);
  EXPECT_FALSE(offers->empty());
  for (const Offer& offer : *offers) EXPECT_EQ(offer.region, "us-west-1");
}

TEST_F(LambdaTest, RentsWithAKeyThatIsThere) {
  http_->On("GET", kKeys, 200, Keys("laptop", std::string(kBlob) + " other comment"))
      .On("POST", kLaunch, 200, R"({"data":{"instance_ids":["i1"]}})");
  RentOptions options = Options();
  options.start_script = "touch /tmp/started\n";
  options.env["NAME"] = "it's";
  options.volume_id = "fs-1";
  options.volume_path = "/data/sets";
  const auto instance = provider_->Rent(AnOffer(), options, kLabel);
  ASSERT_OK(instance);
  EXPECT_EQ(instance->id, "i1");
  EXPECT_EQ(instance->label, kLabel);
  EXPECT_EQ(instance->state, Instance::State::kStarting);
  EXPECT_DOUBLE_EQ(instance->price_usd_per_hour, 0.75);
  const nlohmann::json body = http_->body(1);
  EXPECT_EQ(body["region_name"], "us-west-1");
  EXPECT_EQ(body["instance_type_name"], "gpu_1x_a10");
  EXPECT_EQ(body["ssh_key_names"], nlohmann::json::array({"laptop"}));
  EXPECT_EQ(body["name"], kLabel);
  EXPECT_EQ(body["tags"][0]["value"], kLabel);
  EXPECT_FALSE(body.contains("quantity"));
  EXPECT_EQ(body["file_system_mounts"][0]["file_system_id"], "fs-1");
  EXPECT_EQ(body["file_system_mounts"][0]["mount_point"], "/data/sets");
  const std::string script = body["user_data"];
  EXPECT_THAT(script, StartsWith("#!/bin/bash\n"));
  EXPECT_THAT(script, HasSubstr("export NAME='it'\\''s'\n"));
  EXPECT_THAT(script, HasSubstr("touch /tmp/started\n"));
  EXPECT_EQ(http_->request(1).rate_class, "launch");
  EXPECT_FALSE(http_->request(1).repeatable);
}

TEST_F(LambdaTest, AHostKeyGoesToCloudInit) {
  EXPECT_TRUE(provider_->traits().takes_host_key);
  http_->On("GET", kKeys, 200, Keys("laptop", kBlob))
      .On("POST", kLaunch, 200, R"({"data":{"instance_ids":["i1"]}})");
  RentOptions options = Options();
  options.start_script = "touch /tmp/started\n";
  options.host_key = {"-----BEGIN\nsecret\n-----END\n", "ssh-ed25519 AAAA"};
  ASSERT_OK(provider_->Rent(AnOffer(), options, kLabel));
  const std::string data = http_->body(1)["user_data"];
  constexpr absl::string_view kMark = "#cloud-config\n";
  ASSERT_THAT(data, StartsWith(std::string(kMark)));
  const nlohmann::json config = nlohmann::json::parse(data.substr(kMark.size()));
  EXPECT_EQ(config["ssh_keys"]["ed25519_private"], options.host_key.private_key);
  EXPECT_EQ(config["ssh_keys"]["ed25519_public"], "ssh-ed25519 AAAA");
  ASSERT_EQ(config["runcmd"].size(), 1u);
  EXPECT_THAT(config["runcmd"][0].get<std::string>(), HasSubstr("touch /tmp/started\n"));
  EXPECT_EQ(*CloudInitData({}, "Lambda", 10), "");
  options.start_script.clear();
  options.env.clear();
  EXPECT_EQ(CloudInitData(options, "Lambda", 1000)->find("runcmd"), std::string::npos);
}

TEST_F(LambdaTest, RegistersAKeyThatIsNot) {
  http_->On("GET", kKeys, 200, R"({"data":[]})")
      .On("POST", kKeys, 200,
          R"({"data":{"id":"9","name":"gpuctl-x","public_key":")" + std::string(kBlob) + R"("}})")
      .On("POST", kLaunch, 200, R"({"data":{"instance_ids":["i1"]}})");
  ASSERT_OK(provider_->Rent(AnOffer(), Options(), kLabel));
  EXPECT_EQ(http_->body(1)["public_key"], kBlob);
  EXPECT_EQ(http_->body(1)["name"].get<std::string>().size(), 7u + 12u);
  EXPECT_FALSE(http_->request(1).repeatable);
  EXPECT_EQ(http_->body(2)["ssh_key_names"][0], "gpuctl-x");
}

TEST_F(LambdaTest, LosesTheRaceForAKeyGracefully) {
  http_->On("GET", kKeys, 200, R"({"data":[]})")
      .On("POST", kKeys, 400, Error("global/duplicate"))
      .On("GET", kKeys, 200, Keys("theirs", kBlob))
      .On("POST", kLaunch, 200, R"({"data":{"instance_ids":["i1"]}})");
  ASSERT_OK(provider_->Rent(AnOffer(), Options(), kLabel));
  EXPECT_EQ(http_->body(3)["ssh_key_names"][0], "theirs");
  http_->On("GET", kKeys, 200, R"({"data":[]})")
      .On("POST", kKeys, 400, Error("global/duplicate"))
      .On("GET", kKeys, 200, R"({"data":[]})");
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel), StatusIs(Code::kInvalidArgument));
}

TEST_F(LambdaTest, TakesTheAccountsKeyWhenNoneIsGiven) {
  http_->On("GET", kKeys, 200, Keys("first", "ssh-rsa AAAAB3NzaC1yc2EAAAADAQ"))
      .On("POST", kLaunch, 200, R"({"data":{"instance_ids":["i1"]}})");
  ASSERT_OK(provider_->Rent(AnOffer(), {}, kLabel));
  EXPECT_EQ(http_->body(1)["ssh_key_names"][0], "first");
  EXPECT_FALSE(http_->body(1).contains("user_data"));
  http_->On("GET", kKeys, 200, R"({"data":[]})");
  EXPECT_THAT(provider_->Rent(AnOffer(), {}, kLabel), StatusIs(Code::kInvalidArgument));
}

TEST_F(LambdaTest, NothingIsRentedBeforeTheLaunch) {
  http_->Fail("GET", kKeys, absl::DeadlineExceededError("30 s"));
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel), StatusIs(Code::kUnavailable));
  http_->On("GET", kKeys, 200, "<html>");
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel), StatusIs(Code::kUnavailable));
  http_->On("GET", kKeys, 200, R"({"data":[]})")
      .Fail("POST", kKeys, absl::UnknownError("connection reset"));
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel), StatusIs(Code::kUnavailable));
  http_->On("GET", kKeys, 401, Error("global/invalid-api-key"));
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel), StatusIs(Code::kUnauthenticated));
}

TEST_F(LambdaTest, RefusalsOfALaunchSayWhatToDo) {
  const struct {
    int status;
    const char* code;
    Code wanted;
  } rows[] = {
      {400, "instance-operations/launch/insufficient-capacity", Code::kAborted},
      {400, "instance-operations/launch/file-system-in-wrong-region", Code::kInvalidArgument},
      {400, "global/invalid-parameters", Code::kInvalidArgument},
      {400, "global/quota-exceeded", Code::kResourceExhausted},
      {401, "global/invalid-api-key", Code::kUnauthenticated},
      {403, "global/account-inactive", Code::kPermissionDenied},
      {403, "global/invalid-address", Code::kPermissionDenied},
      {403, "global/forbidden", Code::kPermissionDenied},
      {404, "global/object-does-not-exist", Code::kInvalidArgument},
      {400, "global/object-does-not-exist", Code::kInvalidArgument},
      {409, "global/conflict", Code::kAborted},
      {400, "something/new", Code::kInvalidArgument},
      {429, "global/rate-limited", Code::kUnavailable},
      {500, "global/internal-error", Code::kUnknown},
      {500, "something/new", Code::kUnknown},
      {400, "provider/internal-unknown", Code::kUnknown},
  };
  for (const auto& row : rows) {
    EXPECT_THAT(RentAnswered(row.status, Error(row.code)),
                StatusIs(row.wanted, HasSubstr(std::string("words of ") + row.code)));
  }
  EXPECT_THAT(RentAnswered(429, "Too many requests"), StatusIs(Code::kUnavailable));
}

TEST_F(LambdaTest, WhatMayHaveMadeAnInstanceIsUnknown) {
  EXPECT_THAT(RentAnswered(502, "<html>"), StatusIs(Code::kUnknown));
  EXPECT_THAT(RentAnswered(200, R"({"data":{"instance_ids":["i)"), StatusIs(Code::kUnknown));
  EXPECT_THAT(RentAnswered(200, R"({"data":{"instance_ids":[]}})"), StatusIs(Code::kUnknown));
  EXPECT_THAT(RentAnswered(200, R"({"data":{"instance_ids":["i1","i2"]}})"),
              StatusIs(Code::kUnknown, HasSubstr("i1, i2")));
  http_->On("GET", kKeys, 200, Keys("mine", kBlob))
      .Fail("POST", kLaunch, absl::DeadlineExceededError("30 s"));
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel), StatusIs(Code::kDeadlineExceeded));
}

TEST_F(LambdaTest, RefusesWhatCannotWorkBeforeAsking) {
  Offer foreign = AnOffer();
  foreign.ref = "nothing-of-ours";
  EXPECT_THAT(provider_->Rent(foreign, Options(), kLabel), StatusIs(Code::kInvalidArgument));
  RentOptions options = Options();
  options.image = "ubuntu";
  EXPECT_THAT(provider_->Rent(AnOffer(), options, kLabel), StatusIs(Code::kInvalidArgument));
  options = Options();
  options.disk_bytes = 5000LL << 30;
  EXPECT_THAT(provider_->Rent(AnOffer(), options, kLabel), StatusIs(Code::kInvalidArgument));
  options = Options();
  options.start_script = std::string(1'000'001, 'x');
  EXPECT_THAT(provider_->Rent(AnOffer(), options, kLabel), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(provider_->Describe(""), StatusIs(Code::kInvalidArgument));
  EXPECT_TRUE(http_->requests().empty());
}

TEST_F(LambdaTest, AnAddressMakesItRunning) {
  const struct {
    const char* status;
    const char* more;
    Instance::State state;
  } rows[] = {
      {"booting", "", Instance::State::kStarting},
      {"booting", R"("ip":"198.51.100.2",)", Instance::State::kStarting},
      {"active", "", Instance::State::kStarting},
      {"active", R"("ip":"198.51.100.2",)", Instance::State::kRunning},
      {"unhealthy", R"("ip":"198.51.100.2",)", Instance::State::kSilent},
      {"preempted", "", Instance::State::kFailed},
      {"terminating", "", Instance::State::kStopping},
  };
  for (const auto& row : rows) {
    http_->On("GET", "/api/v1/instances/i1", 200,
              R"({"data":)" + Row("i1", row.status, row.more) + "}");
    const auto instance = provider_->Describe("i1");
    ASSERT_OK(instance);
    EXPECT_EQ(instance->state, row.state) << row.status;
    EXPECT_EQ(instance->address.has_value(), row.state == Instance::State::kRunning);
    if (instance->address) {
      EXPECT_EQ(instance->address->host, "198.51.100.2");
      EXPECT_EQ(instance->address->port, 22);
      EXPECT_EQ(instance->address->user, "ubuntu");
    }
    EXPECT_DOUBLE_EQ(instance->price_usd_per_hour, 0.75);
    EXPECT_EQ(instance->gpu_name, "A10");
    EXPECT_EQ(instance->place, "lambda/gpu_1x_a10/us-west-1");
  }
}

TEST_F(LambdaTest, GoneIsWhatLambdaSaysIsGone) {
  EXPECT_THAT(DescribeAnswered(404, Error("global/object-does-not-exist")),
              StatusIs(Code::kNotFound));
  EXPECT_THAT(DescribeAnswered(400, Error("global/object-does-not-exist")),
              StatusIs(Code::kNotFound));
  EXPECT_THAT(DescribeAnswered(200, R"({"data":)" + Row("i1", "terminated", "") + "}"),
              StatusIs(Code::kNotFound));
  EXPECT_THAT(DescribeAnswered(404, Error("global/not-found")),
              StatusIs(Code::kFailedPrecondition));
  EXPECT_THAT(DescribeAnswered(404, "<html>"), StatusIs(Code::kUnknown));
  EXPECT_THAT(DescribeAnswered(500, Error("global/internal-error")), StatusIs(Code::kUnavailable));
  EXPECT_THAT(DescribeAnswered(200, R"({"data":)" + Row("i2", "active", "") + "}"),
              StatusIs(Code::kUnknown));
}

TEST_F(LambdaTest, ListsWhatBillsUnderItsLabelOrTag) {
  const std::string tag =
      R"("tags":[{"key":"gpuctl-lease","value":")" + std::string(kLabel) + R"("}],)";
  std::string renamed = Row("i2", "active", tag);
  renamed.replace(renamed.find(kLabel), sizeof(kLabel) - 1, "my box");
  http_->On("GET", "/api/v1/instances", 200,
            R"({"data":[)" + Row("i1", "booting", "") + "," + renamed + "," +
                Row("i3", "terminated", "") + "]}");
  const auto all = provider_->ListInstances();
  ASSERT_OK(all);
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ(all->at(0).label, kLabel);
  EXPECT_EQ(all->at(1).label, kLabel);
  for (const char* body : {"{}", "[]", R"({"data":{}})", "<html>", R"({"data":[{"id":"x"}]})"}) {
    http_->On("GET", "/api/v1/instances", 200, body);
    EXPECT_FALSE(provider_->ListInstances().ok()) << body;
  }
}

TEST_F(LambdaTest, TerminatesOnlyWhatIsConfirmed) {
  http_->On("POST", kTerminate, 200,
            R"({"data":{"terminated_instances":[)" + Row("i1", "terminating", "") + "]}}");
  EXPECT_OK(provider_->Terminate("i1"));
  EXPECT_EQ(http_->body(0), (nlohmann::json{{"instance_ids", nlohmann::json::array({"i1"})}}));
  EXPECT_TRUE(http_->request(0).repeatable);
  http_->On("POST", kTerminate, 200, R"({"data":{"terminated_instances":[]}})");
  EXPECT_THAT(provider_->Terminate("i1"), StatusIs(Code::kUnavailable));
  http_->On("POST", kTerminate, 404, Error("global/object-does-not-exist"));
  EXPECT_THAT(provider_->Terminate("i1"), StatusIs(Code::kNotFound));
  http_->On("POST", kTerminate, 409, Error("global/conflict"));
  EXPECT_THAT(provider_->Terminate("i1"), StatusIs(Code::kUnavailable));
  http_->On("POST", kTerminate, 404, "<html>");
  EXPECT_FALSE(provider_->Terminate("i1").ok());
  http_->On("POST", kTerminate, 200, "{}");
  EXPECT_FALSE(provider_->Terminate("i1").ok());
}

}  // namespace
}  // namespace gpuctl
