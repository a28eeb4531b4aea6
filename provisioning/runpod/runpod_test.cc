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

TEST_F(RunpodTest, ReadsRecordedPods) {
  GPUCTL_SHARED_OR_SKIP(recorded, kRecorded);
  const auto described = [&](const char* name) {
    nlohmann::json row = recorded[name];
    if (!row.contains("id")) row["id"] = "none";
    row.erase("image");  // its log is asked for elsewhere
    const std::string id = row["id"];
    http_->On("GET", "/v2/pods/" + id, 200, row.dump());
    return provider_->Describe(id);
  };
  const auto pod = described("v2_pod_running");
  ASSERT_OK(pod);
  EXPECT_EQ(pod->id, "5xpma5eg46tqjq");
  EXPECT_EQ(pod->label, "imgtbx-v2-probe");
  EXPECT_EQ(pod->state, Instance::State::kRunning);
  EXPECT_NEAR(pod->price_usd_per_hour, 0.72, 0.1);
  EXPECT_EQ(pod->place, "runpod/EU-RO-1/NVIDIA RTX PRO 4500 Blackwell");
  EXPECT_EQ(pod->gpu_count, 1);
  EXPECT_EQ(pod->region, "EU-RO-1");
  EXPECT_EQ(pod->address.value().host, "213.173.104.74");
  EXPECT_EQ(pod->address->port, 35558);
  EXPECT_EQ(pod->address->user, "root");
  const auto early = described("v2_pod_running_but_not_ready (trimmed)");
  ASSERT_OK(early);
  EXPECT_EQ(early->state, Instance::State::kStarting);
  const auto stopped = described("v2_pod_stopped (trimmed)");
  ASSERT_OK(stopped);
  EXPECT_EQ(stopped->state, Instance::State::kFailed);
  EXPECT_EQ(stopped->status, "EXITED");
}

TEST(RunpodApiTest, ReadsRecordedCatalogAndErrors) {
  GPUCTL_SHARED_OR_SKIP(recorded, kRecorded);
  const auto types = ParseRunpodCatalog(recorded["v2_catalog_gpus (trimmed)"].dump());
  ASSERT_OK(types);
  ASSERT_EQ(types->size(), 5u);
  EXPECT_EQ((*types)[1].id, "NVIDIA GeForce RTX 4090");
  EXPECT_EQ((*types)[1].secure_usd_per_hour, 0.74);
  EXPECT_EQ((*types)[1].cuda_versions, (std::vector<std::string>{"12.4", "12.8"}));
  EXPECT_EQ((*types)[3].manufacturer, "AMD");
  EXPECT_THAT(RunpodErrorDetail(recorded["v2_error_400_no_capacity"].dump()),
              HasSubstr("no longer any instances available"));
  EXPECT_THAT(RunpodErrorDetail(recorded["v2_error_422_bad_action"].dump()),
              HasSubstr("$.action: value must be one of"));
}

TEST(RunpodApiTest, WritesTheRequestThatWasAccepted) {
  GPUCTL_SHARED_OR_SKIP(recorded, kRecorded);
  RunpodCreate create;
  create.name = "imgtbx-v2-probe";
  create.image = "runpod/pytorch:1.0.7-cu1281-torch291-ubuntu2204";
  create.gpu_id = "NVIDIA RTX PRO 4500 Blackwell";
  create.cloud = "SECURE";
  create.data_center = "EU-RO-1";
  create.disk_gb = 30;
  create.env["PUBLIC_KEY"] = "ssh-ed25519 SCRUBBED";
  create.volume_id = "grvtso8ftn";
  create.volume_path = "/workspace";
  EXPECT_EQ(RunpodCreateBody(create), recorded["v2_create_request_that_got_201"]);
}

TEST_F(RunpodTest, NamesTheFieldThatIsWrong) {
  const auto described = [&](const std::string& body) {
    http_->On("GET", "/v2/pods/a", 200, body);
    return provider_->Describe("a").status();
  };
  EXPECT_THAT(described(R"({"name":"x","status":"RUNNING"})"),
              StatusIs(Code::kUnknown, HasSubstr("field id of pod is missing")));
  EXPECT_THAT(described(R"({"id":7,"status":"RUNNING"})"),
              StatusIs(Code::kUnknown, HasSubstr("field id of pod is a JSON number")));
  // A host must not look like an option of ssh.
  EXPECT_THAT(described(Pod("a", "RUNNING", R"({"host":"-oProxyCommand=x","port":22})")),
              StatusIs(Code::kUnknown, HasSubstr("is no address")));
  EXPECT_THAT(described(Pod("a", "RUNNING", R"({"host":"h","port":70000})")),
              StatusIs(Code::kUnknown, HasSubstr("is no port")));
  for (const char* list : {R"({"pods":null})", "[]", "<html>down</html>"}) {
    http_->On("GET", "/v2/pods?includeClusterPods=true", 200, list);
    EXPECT_THAT(provider_->ListInstances(), StatusIs(Code::kUnknown)) << list;
  }
}

TEST_F(RunpodTest, OffersOneRowForEachDataCenterCheapestFirst) {
  Catalog(1, kCatalog, kCatalog);
  const auto offers = provider_->ListOffers({});
  ASSERT_OK(offers);
  ASSERT_EQ(offers->size(), 5u);
  const Offer& first = offers->front();
  EXPECT_EQ(first.ref, "COMMUNITY|EU-RO-1|1|NVIDIA GeForce RTX 4090");
  EXPECT_DOUBLE_EQ(first.price_usd_per_hour, 0.34 + kDisk40);
  EXPECT_EQ(first.gpu_name, "RTX-4090");
  EXPECT_EQ(first.gpu_count, 1);
  EXPECT_EQ(first.gpu_memory_bytes, 24'000'000'000);
  EXPECT_EQ(first.region, "EU-RO-1");
  EXPECT_EQ(first.cuda_version, "12.11");
  EXPECT_EQ(first.place, "runpod/EU-RO-1/NVIDIA GeForce RTX 4090");
  EXPECT_EQ(offers->back().gpu_name, "H100-SXM");
  for (const Offer& offer : *offers) EXPECT_THAT(offer.ref, Not(HasSubstr("AMD")));
  EXPECT_EQ(http_->header(0, "Authorization"), "Bearer key-1");
  EXPECT_THAT(http_->header(0, "User-Agent"), HasSubstr("gpuctl"));
  EXPECT_TRUE(http_->request(0).repeatable);
}

TEST_F(RunpodTest, ABadMachineSpeaksAgainstItsModelInItsDataCenterAlone) {
  Catalog(1, kCatalog, kCatalog);
  const auto offers = provider_->ListOffers({});
  ASSERT_OK(offers);
  std::map<std::string, std::set<std::string>> places;  // of data center and model
  for (const Offer& offer : *offers) places[offer.place].insert(offer.region + offer.gpu_name);
  // The 4090 in EU-RO-1 (in both clouds) and in US-TX-3, the H100 in US-TX-3.
  EXPECT_EQ(places.size(), 3u);
  for (const auto& [place, kinds] : places) EXPECT_EQ(kinds.size(), 1u) << place;
  EXPECT_EQ(provider_->traits().leave_out_for, absl::Hours(2));
}

TEST_F(RunpodTest, ListsNetworkVolumes) {
  http_->On("GET", "/v2/network-volumes", 200, R"({"networkVolumes":[
    {"id":"agv6w2qcg7","name":"my-dataset","size":50,"dataCenter":"US-TX-3","type":"STANDARD"},
    {"id":"b","name":"big","size":1500,"dataCenter":"EU-RO-1","type":"STANDARD"},
    {"id":"c","name":"fast","size":10,"dataCenter":"EU-RO-1","type":"HIGH_PERFORMANCE"}]})");
  const auto volumes = provider_->ListVolumes();
  ASSERT_OK(volumes);
  ASSERT_EQ(volumes->size(), 3u);
  const Volume& first = volumes->front();
  EXPECT_EQ(first.provider, "runpod");
  EXPECT_EQ(first.id, "agv6w2qcg7");
  EXPECT_EQ(first.name, "my-dataset");
  EXPECT_EQ(first.size_bytes, 50'000'000'000);
  EXPECT_EQ(first.region, "US-TX-3");
  EXPECT_EQ(first.place, "");
  EXPECT_EQ(first.mount_path, "/workspace");
  EXPECT_NEAR(first.usd_per_month.value(), 3.5, 1e-9);
  EXPECT_NEAR(volumes->at(1).usd_per_month.value(), 95, 1e-9);
  EXPECT_FALSE(volumes->at(2).usd_per_month.has_value());
  for (const char* bad : {R"({"networkVolumes":[{"name":"x"}]})", R"({"volumes":[]})", "<html>"}) {
    http_->On("GET", "/v2/network-volumes", 200, bad);
    EXPECT_THAT(provider_->ListVolumes(), StatusIs(Code::kUnknown)) << bad;
  }
}

TEST_F(RunpodTest, OffersWhereTheVolumeIs) {
  Requirements requirements;
  requirements.volume.emplace();
  requirements.volume->provider = "runpod";
  requirements.volume->region = "EU-RO-1";
  http_->On("GET", "/v2/catalog/gpus?include=AVAILABILITY&product=POD&cloud=SECURE&count=1", 200,
            kCatalog);
  const auto offers = provider_->ListOffers(requirements);
  ASSERT_OK(offers);
  ASSERT_EQ(offers->size(), 1u);
  EXPECT_EQ(offers->front().ref, "SECURE|EU-RO-1|1|NVIDIA GeForce RTX 4090");
  EXPECT_TRUE(offers->front().takes_volume);
  // It does not ask about another provider's volume.
  requirements.volume->provider = "lambda";
  EXPECT_TRUE(provider_->ListOffers(requirements)->empty());
}

TEST_F(RunpodTest, OffersWhatIsAskedForOnly) {
  Requirements requirements;
  requirements.gpus = {{"H100", 2, 0, 0}, {"RTX-4090", 8, 0, 0}};
  requirements.regions = {"US"};
  requirements.disk_bytes = 100'000'000'001;
  Catalog(2, kCatalog, kCatalog);
  Catalog(8, kCatalog, kCatalog);
  auto offers = provider_->ListOffers(requirements);
  ASSERT_OK(offers);
  // No host of the community has eight of the cheap model.
  ASSERT_EQ(offers->size(), 2u);
  EXPECT_EQ((*offers)[0].ref, "SECURE|US-TX-3|2|NVIDIA H100 80GB HBM3");
  EXPECT_DOUBLE_EQ((*offers)[0].price_usd_per_hour, 2 * 2.69 + 101 * 0.10 / 720);
  EXPECT_EQ((*offers)[1].ref, "SECURE|US-TX-3|8|NVIDIA GeForce RTX 4090");
  requirements.max_price_usd_per_hour = 5.6;
  Catalog(2, kCatalog, kCatalog);
  Catalog(8, kCatalog, kCatalog);
  offers = provider_->ListOffers(requirements);
  ASSERT_OK(offers);
  EXPECT_EQ(offers->size(), 1u);
  requirements.spot = true;
  offers = provider_->ListOffers(requirements);
  ASSERT_OK(offers);
  EXPECT_TRUE(offers->empty());
}

TEST_F(RunpodTest, TheUnionsCountriesAreNotAllOfEurope) {
  Requirements requirements;
  requirements.regions = {"EU"};
  std::string catalog = kCatalog;
  Catalog(1, kCatalog, R"({"gpus":[]})");
  auto offers = provider_->ListOffers(requirements);
  ASSERT_OK(offers);
  ASSERT_EQ(offers->size(), 1u);
  EXPECT_EQ((*offers)[0].region, "EU-RO-1");
  catalog.replace(catalog.find("EU-RO-1"), 7, "EUR-IS-1");
  Catalog(1, catalog, R"({"gpus":[]})");
  EXPECT_TRUE(provider_->ListOffers(requirements)->empty());
  requirements.regions = {"EEA"};
  Catalog(1, catalog, R"({"gpus":[]})");
  EXPECT_EQ(provider_->ListOffers(requirements)->size(), 1u);
}

TEST_F(RunpodTest, RentsWithAllThatAnInstanceNeeds) {
  http_->On("POST", "/v2/pods", 201, Pod("p1", "PROVISIONING", "null"));
  RentOptions options = Options();
  options.start_script = "echo 'hello'\n";
  options.env["EPOCHS"] = "3";
  options.volume_id = "vol-1";
  options.volume_path = "/data/sets";
  const auto instance = provider_->Rent(AnOffer(), options, kLabel);
  ASSERT_OK(instance);
  EXPECT_EQ(instance->id, "p1");
  EXPECT_EQ(instance->label, kLabel);
  EXPECT_EQ(instance->state, Instance::State::kStarting);
  EXPECT_FALSE(instance->address.has_value());
  EXPECT_DOUBLE_EQ(instance->price_usd_per_hour, 0.74 + kDisk40);
  EXPECT_EQ(instance->created_ms, 1773432000000);
  const nlohmann::json body = http_->body(0);
  EXPECT_EQ(body["name"], kLabel);
  EXPECT_EQ(body["gpu"]["count"], 1);
  EXPECT_EQ(body["gpu"]["minCudaVersion"], "12.8");
  EXPECT_EQ(body["cloud"], "SECURE");
  EXPECT_EQ(body["dataCenterIds"], nlohmann::json::array({"EU-RO-1"}));
  EXPECT_EQ(body["disk"], 40);
  EXPECT_EQ(body["ports"], nlohmann::json::array({"22/tcp"}));
  EXPECT_EQ(body["env"]["PUBLIC_KEY"], kKey);
  EXPECT_EQ(body["env"]["EPOCHS"], "3");
  EXPECT_EQ(body["mounts"]["network"][0]["volumeId"], "vol-1");
  EXPECT_EQ(body["mounts"]["network"][0]["path"], "/data/sets");
  EXPECT_THAT(body["args"].get<std::string>(), HasSubstr(GzipBase64(options.start_script)));
  EXPECT_THAT(body["args"].get<std::string>(), HasSubstr("exec /start.sh"));
  EXPECT_FALSE(body.contains("startSsh"));
  EXPECT_FALSE(http_->request(0).repeatable);
  EXPECT_EQ(http_->request(0).rate_class, "");
}

TEST_F(RunpodTest, GivesALoginOnceAndTakesItAgain) {
  EXPECT_TRUE(provider_->traits().takes_login);
  EXPECT_OK(provider_->CheckLogin(*PrivateOptions().registry_login));
  http_->On("GET", "/v2/registries", 200, R"({"registries":[{"id":"other","name":"mine"}]})")
      .On("POST", "/v2/registries", 201, R"({"id":"reg-1","name":"n"})")
      .On("POST", "/v2/pods", 201, Pod("p1", "RUNNING", "null"));
  ASSERT_OK(provider_->Rent(AnOffer(), PrivateOptions(), kLabel));
  const nlohmann::json entry = http_->body(1);
  EXPECT_EQ(entry["username"], "ada");
  EXPECT_EQ(entry["password"], "p4ss word\"");
  EXPECT_TRUE(IsStoredLoginOf("00ff12ab", entry["name"].get<std::string>())) << entry["name"];
  EXPECT_EQ(http_->body(2)["registry"], "reg-1");
  EXPECT_THAT(http_->request(2).body, Not(HasSubstr("p4ss")));
  EXPECT_FALSE(http_->request(1).repeatable);
  // The same login is there already.
  http_
      ->On("GET", "/v2/registries", 200,
           R"({"registries":[{"id":"reg-1","name":)" + entry["name"].dump() + "}]}")
      .On("POST", "/v2/pods", 201, Pod("p2", "RUNNING", "null"));
  ASSERT_OK(provider_->Rent(AnOffer(), PrivateOptions(), "gpuctl-00ff12ab-ba9876543210"));
  EXPECT_EQ(http_->body(4)["registry"], "reg-1");
  // Another launch was faster.
  http_->On("GET", "/v2/registries", 200, R"({"registries":[]})")
      .On("POST", "/v2/registries", 400, R"({"detail":"the name p4ss word\" is taken"})")
      .On("GET", "/v2/registries", 200,
          R"({"registries":[{"id":"reg-2","name":)" + entry["name"].dump() + "}]}")
      .On("POST", "/v2/pods", 201, Pod("p3", "RUNNING", "null"));
  ASSERT_OK(provider_->Rent(AnOffer(), PrivateOptions(), kLabel));
  EXPECT_EQ(http_->body(8)["registry"], "reg-2");
}

TEST_F(RunpodTest, NothingIsRentedWithoutTheLogin) {
  const auto rent = [this] {
    return provider_->Rent(AnOffer(), PrivateOptions(), kLabel).status();
  };
  http_->Fail("GET", "/v2/registries", absl::UnknownError("reset"));
  EXPECT_THAT(rent(), StatusIs(Code::kUnavailable));
  http_->On("GET", "/v2/registries", 403, R"({"detail":"access denied"})");
  EXPECT_THAT(rent(), StatusIs(Code::kPermissionDenied));
  http_->On("GET", "/v2/registries", 200, R"({"registries":[]})")
      .On("POST", "/v2/registries", 422, R"({"detail":"bad password p4ss word\" of ada"})")
      .On("GET", "/v2/registries", 200, R"({"registries":[]})");
  EXPECT_THAT(rent(), StatusIs(Code::kInvalidArgument,
                               AllOf(HasSubstr("[hidden] of ada"), Not(HasSubstr("p4ss")))));
  // A list that cannot be read is not an empty one.
  http_->On("GET", "/v2/registries", 200, "{}");
  EXPECT_THAT(rent(), StatusIs(Code::kUnavailable));
}

TEST_F(RunpodTest, RemovesOnlyItsOwnLoginsThatNoPodUses) {
  const auto name = [](const char* owner, const char* password) {
    return StoredLoginName(owner, {"ghcr.io", "ada", password}, "key-1");
  };
  const auto row = [](const std::string& id, const std::string& of) {
    return R"({"id":")" + id + R"(","name":")" + of + R"("})";
  };
  std::string pod = Pod("p1", "RUNNING", kDirect);
  pod.insert(1, R"("registry":"used",)");
  std::string over = Pod("p2", "TERMINATED", "null");
  over.insert(1, R"("registry":"old",)");
  http_
      ->On("GET", "/v2/pods?includeClusterPods=true", 200, R"({"pods":[)" + pod + "," + over + "]}")
      .On("GET", "/v2/registries", 200,
          R"({"registries":[)" + row("used", name("00ff12ab", "1")) + "," +
              row("theirs", name("00ff12ac", "1")) + "," + row("users", "dockerhub") + "," +
              row("old", name("00ff12ab", "2")) + "," + row("busy", name("00ff12ab", "3")) + "," +
              row("gone", name("00ff12ab", "4")) + "]}")
      .On("DELETE", "/v2/registries/old", 204, "")
      .On("DELETE", "/v2/registries/busy", 400, R"({"detail":"in use by a pod"})")
      .On("DELETE", "/v2/registries/gone", 404, R"({"detail":"not found"})");
  const auto removed = provider_->RemoveUnusedLogins("00ff12ab");
  ASSERT_OK(removed);
  EXPECT_EQ(*removed, 1);
  // Where it is not known what is used, nothing is removed.
  http_->On("GET", "/v2/pods?includeClusterPods=true", 500, "");
  EXPECT_THAT(provider_->RemoveUnusedLogins("00ff12ab"), StatusIs(Code::kUnavailable));
}

TEST_F(RunpodTest, ThePodsLogTellsOfAnImageThatCannotBePulled) {
  const auto pod = [](const std::string& image, const std::string& ssh) {
    std::string text = Pod("p1", "RUNNING", ssh);
    return text.insert(1, R"("image":")" + image + R"(",)");
  };
  constexpr char kLog[] = "/v2/pods/p1/logs?source=system&tail=50";
  http_->On("GET", "/v2/pods/p1", 200, pod("ghcr.io/ada/private:1", "null"))
      .On("GET", kLog, 200,
          "id: 1\ndata: {\"line\":\"pulling image\",\"source\":\"system\"}\n\n"
          "data: {\"line\":\"Error response from daemon: pull access denied for "
          "ghcr.io/ada/private\"}\n\ndata: {\"li");
  auto instance = provider_->Describe("p1");
  ASSERT_OK(instance);
  EXPECT_TRUE(instance->image_fails);
  EXPECT_THAT(instance->status,
              HasSubstr("RUNNING: Error response from daemon: pull access denied"));
  EXPECT_EQ(instance->state, Instance::State::kStarting);
  EXPECT_TRUE(http_->request(1).endless);
  EXPECT_LE(http_->request(1).timeout, absl::Seconds(5));
  // A log that tells nothing, or does not come, says nothing.
  for (const int status : {200, 500}) {
    http_->On("GET", "/v2/pods/p1", 200, pod("ghcr.io/ada/private:1", "null"))
        .On("GET", kLog, status, "data: {\"line\":\"pulling image\"}\n");
    instance = provider_->Describe("p1");
    ASSERT_OK(instance);
    EXPECT_FALSE(instance->image_fails);
    EXPECT_EQ(instance->status, "RUNNING");
  }
  // Nobody asks for the log of a pod that runs, or whose image is ours.
  http_->On("GET", "/v2/pods/p1", 200, pod("ghcr.io/ada/private:1", kDirect))
      .On("GET", "/v2/pods/p1", 200,
          pod("runpod/pytorch:1.0.7-cu1281-torch291-ubuntu2204", "null"));
  ASSERT_OK(provider_->Describe("p1"));
  ASSERT_OK(provider_->Describe("p1"));
}

TEST_F(RunpodTest, LeavesTheImagesCommandAloneWithoutAScript) {
  http_->On("POST", "/v2/pods", 201, Pod("p1", "RUNNING", "null"));
  RentOptions options;
  options.image = "ghcr.io/ada/train:1";
  const auto instance = provider_->Rent(AnOffer(), options, kLabel);
  ASSERT_OK(instance);
  // Runpod says RUNNING before anything runs.
  EXPECT_EQ(instance->state, Instance::State::kStarting);
  EXPECT_FALSE(http_->body(0).contains("args"));
  EXPECT_FALSE(http_->body(0)["gpu"].contains("minCudaVersion"));
  EXPECT_EQ(http_->body(0)["startSsh"], true);
}

TEST_F(RunpodTest, RefusalsOfACreateSayWhatToDo) {
  EXPECT_THAT(RentAnswered(400, kNoCapacity),
              StatusIs(Code::kAborted, HasSubstr("no longer any instances available")));
  EXPECT_THAT(RentAnswered(400, R"({"title":"Bad Request","status":400,"detail":"disk too big"})"),
              StatusIs(Code::kInvalidArgument, HasSubstr("disk too big")));
  EXPECT_THAT(RentAnswered(401, R"({"title":"Unauthorized","status":401,"detail":"bad key"})"),
              StatusIs(Code::kUnauthenticated, HasSubstr("bad key")));
  EXPECT_THAT(
      RentAnswered(402, R"({"title":"x","status":402,"detail":"Your account balance is too low"})"),
      StatusIs(Code::kResourceExhausted, HasSubstr("balance is too low")));
  EXPECT_THAT(RentAnswered(403, "error code: 1010"),
              StatusIs(Code::kPermissionDenied, HasSubstr("1010")));
  EXPECT_THAT(RentAnswered(404, R"({"title":"x","status":404,"detail":"no such volume"})"),
              StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(
      RentAnswered(422, R"({"title":"x","status":422,"detail":"f","errors":["$: additional"]})"),
      StatusIs(Code::kInvalidArgument, HasSubstr("$: additional")));
  http_->On("POST", "/v2/pods", 429, R"({"title":"x","status":429,"detail":"slow down"})",
            {{"retry-after", "12"}});
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel),
              StatusIs(Code::kUnavailable, HasSubstr("retry after 12 s")));
}

TEST_F(RunpodTest, WhatMayHaveMadeAPodIsUnknown) {
  EXPECT_THAT(RentAnswered(500, R"({"title":"x","status":500,"detail":"oops"})"),
              StatusIs(Code::kUnknown));
  EXPECT_THAT(RentAnswered(502, "<html>"), StatusIs(Code::kUnknown));
  EXPECT_THAT(RentAnswered(408, ""), StatusIs(Code::kUnknown));
  EXPECT_THAT(RentAnswered(302, ""), StatusIs(Code::kUnknown));
  EXPECT_THAT(RentAnswered(201, R"({"id":"p9","na)"), StatusIs(Code::kUnknown));
  EXPECT_THAT(RentAnswered(201, "<html>welcome</html>"), StatusIs(Code::kUnknown));
  EXPECT_THAT(RentAnswered(201, R"({"id":"p9","status":4})"),
              StatusIs(Code::kUnknown, HasSubstr("pod p9")));
  http_->Fail("POST", "/v2/pods", absl::DeadlineExceededError("30 s"));
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel), StatusIs(Code::kDeadlineExceeded));
  http_->Fail("POST", "/v2/pods", absl::UnavailableError("no such host"));
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel), StatusIs(Code::kUnavailable));
}

TEST_F(RunpodTest, RefusesWhatCannotWorkBeforeAsking) {
  Offer foreign = AnOffer();
  foreign.provider = "vast";
  EXPECT_THAT(provider_->Rent(foreign, Options(), kLabel), StatusIs(Code::kInvalidArgument));
  foreign = AnOffer();
  foreign.ref = "123";
  EXPECT_THAT(provider_->Rent(foreign, Options(), kLabel), StatusIs(Code::kInvalidArgument));
  RentOptions options = Options();
  options.env["RUNPOD_API_KEY"] = "x";
  EXPECT_THAT(provider_->Rent(AnOffer(), options, kLabel),
              StatusIs(Code::kInvalidArgument, HasSubstr("Runpod's own")));
  options = Options();
  for (int i = 0; i < 50; ++i) options.env["V" + std::to_string(i)] = "1";
  EXPECT_THAT(provider_->Rent(AnOffer(), options, kLabel),
              StatusIs(Code::kInvalidArgument, HasSubstr("51 environment variables")));
  options = Options();
  options.ssh_public_key = "nonsense";
  EXPECT_THAT(provider_->Rent(AnOffer(), options, kLabel), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(provider_->Describe(""), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(provider_->Terminate(""), StatusIs(Code::kInvalidArgument));
  EXPECT_TRUE(http_->requests().empty());
}

TEST_F(RunpodTest, DescribesByTheDirectAddressAlone) {
  http_->On("GET", "/v2/pods/p1", 200, Pod("p1", "RUNNING", kDirect));
  auto instance = provider_->Describe("p1");
  ASSERT_OK(instance);
  EXPECT_EQ(instance->state, Instance::State::kRunning);
  EXPECT_EQ(instance->address->host, "203.0.113.7");
  EXPECT_EQ(instance->address->port, 35558);
  EXPECT_EQ(instance->address->user, "root");
  EXPECT_EQ(instance->gpu_name, "RTX-4090");
  EXPECT_EQ(instance->place, "runpod/EU-RO-1/NVIDIA GeForce RTX 4090");
  const struct {
    const char* status;
    Instance::State state;
  } rows[] = {{"PROVISIONING", Instance::State::kStarting},
              {"STARTING", Instance::State::kStarting},
              {"RUNNING", Instance::State::kStarting},
              {"EXITED", Instance::State::kFailed},
              {"ERROR", Instance::State::kFailed}};
  for (const auto& row : rows) {
    http_->On("GET", "/v2/pods/p1", 200, Pod("p1", row.status, "null"));
    instance = provider_->Describe("p1");
    ASSERT_OK(instance);
    EXPECT_EQ(instance->state, row.state) << row.status;
    EXPECT_FALSE(instance->address.has_value());
  }
}

TEST_F(RunpodTest, AStoppedPodCostsItsOwnMountAlone) {
  const auto pod = [this](const char* status, const char* cost, const char* mounts) {
    http_->On("GET", "/v2/pods/p1", 200,
              absl::StrCat(R"({"id":"p1","name":"n","status":")", status, R"(","cost":)", cost,
                           R"(,"disk":40,"mounts":)", mounts,
                           R"(,"createdAt":"2026-03-13T20:00:00Z","ssh":{"direct":null}})"));
    const auto instance = provider_->Describe("p1");
    EXPECT_OK(instance);
    return instance.value_or(Instance());
  };
  constexpr char kMount[] = R"({"persistent":{"size":30,"path":"/workspace"}})";
  constexpr char kNetwork[] = R"({"network":[{"volumeId":"v","path":"/workspace"}]})";
  // A running one pays for both disks, at the same price.
  EXPECT_NEAR(pod("RUNNING", "0.7", kMount).price_usd_per_hour, 0.7 + 70 * 0.10 / 720, 1e-9);
  EXPECT_NEAR(pod("RUNNING", "0.7", kNetwork).price_usd_per_hour, 0.7 + 40 * 0.10 / 720, 1e-9);
  // The description says that the cost is 0 then; a real answer had the full price.
  for (const char* cost : {"0.7", "0.0"}) {
    const Instance stopped = pod("EXITED", cost, kMount);
    EXPECT_NEAR(stopped.price_usd_per_hour, 30 * 0.20 / 720, 1e-9) << cost;
    EXPECT_FALSE(stopped.bills_nothing);
    for (const char* none : {"{}", kNetwork}) {
      EXPECT_EQ(pod("EXITED", cost, none).told_price(), 0.0) << cost << none;
    }
  }
  // A price that is not told is not known.
  EXPECT_EQ(pod("RUNNING", "0", "{}").told_price(), std::nullopt);
}

TEST_F(RunpodTest, GoneIsWhatRunpodSaysIsGone) {
  http_->On("GET", "/v2/pods/p1", 404, R"({"title":"Not Found","status":404,"detail":"gone"})");
  EXPECT_THAT(provider_->Describe("p1"), StatusIs(Code::kNotFound));
  http_->On("GET", "/v2/pods/p1", 200, Pod("p1", "TERMINATED", "null"));
  EXPECT_THAT(provider_->Describe("p1"), StatusIs(Code::kNotFound));
  http_->On("GET", "/v2/pods/p1", 404, "<html>no such page</html>");
  EXPECT_THAT(provider_->Describe("p1"), StatusIs(Code::kUnknown));
  http_->On("GET", "/v2/pods/p1", 500, "");
  EXPECT_THAT(provider_->Describe("p1"), StatusIs(Code::kUnavailable));
  http_->On("GET", "/v2/pods/p1", 200, Pod("p2", "RUNNING", kDirect));
  EXPECT_THAT(provider_->Describe("p1"), StatusIs(Code::kUnknown));
}

TEST_F(RunpodTest, ListsAllPagesOrFails) {
  const std::string list = "/v2/pods?includeClusterPods=true";
  const std::string p1 = Pod("p1", "RUNNING", kDirect);
  const std::string p2 = Pod("p2", "EXITED", "null");
  http_->On("GET", list, 200, R"({"pods":[)" + p1 + R"(],"nextCursor":"a/b"})");
  http_->On("GET", list + "&cursor=a%2Fb", 200,
            R"({"pods":[)" + p2 + "," + Pod("p3", "TERMINATED", "null") + "]}");
  const auto all = provider_->ListInstances();
  ASSERT_OK(all);
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ((*all)[1].id, "p2");
  EXPECT_EQ((*all)[1].state, Instance::State::kFailed);
  // A service that does not know the parameter sends the first page for ever.
  const std::string again = R"({"pods":[)" + p1 + R"(],"nextCursor":"a"})";
  http_->On("GET", list, 200, again).On("GET", list + "&cursor=a", 200, again);
  EXPECT_THAT(provider_->ListInstances(), StatusIs(Code::kUnknown, HasSubstr("twice")));
  // The cursor may be in an object of its own.
  http_
      ->On("GET", list, 200,
           R"({"pods":[)" + p1 + R"(],"pagination":{"hasNextPage":true,"nextCursor":"b"}})")
      .On("GET", list + "&cursor=b", 200,
          R"({"pods":[)" + p2 + R"(],"pagination":{"hasNextPage":false,"nextCursor":"b"}})");
  EXPECT_EQ(provider_->ListInstances()->size(), 2u);
  for (const char* unknown :
       {R"("pagination":{"hasNextPage":true})", R"("hasNextPage":true)", R"("hasMore":true)",
        R"("pagination":{"next":"/v2/pods?page=2"})", R"("nextPageToken":"x")"}) {
    http_->On("GET", list, 200, R"({"pods":[)" + p1 + "]," + unknown + "}");
    EXPECT_THAT(provider_->ListInstances(), StatusIs(Code::kUnknown)) << unknown;
  }
  http_->On("GET", list, 200,
            R"({"pods":[)" + p1 + R"(],"next":null,"hasMore":false,"pagination":{"total":1}})");
  EXPECT_EQ(provider_->ListInstances()->size(), 1u);
  http_->On("GET", list, 410, R"({"error":"retired"})");
  EXPECT_THAT(provider_->ListInstances(), StatusIs(Code::kFailedPrecondition));
  http_->On("GET", list, 200, "{}");
  EXPECT_FALSE(provider_->ListInstances().ok());
  http_->On("GET", list, 200, R"({"pods":[{}]})");
  EXPECT_FALSE(provider_->ListInstances().ok());
  http_->On("GET", list, 204, "");
  EXPECT_FALSE(provider_->ListInstances().ok());
  http_->On("GET", list, 404, R"({"title":"Not Found","status":404,"detail":"x"})");
  EXPECT_FALSE(provider_->ListInstances().ok());
}

TEST_F(RunpodTest, TerminatesUntilItIsGone) {
  http_->On("DELETE", "/v2/pods/p1", 204, "");
  EXPECT_OK(provider_->Terminate("p1"));
  EXPECT_TRUE(http_->request(0).repeatable);
  http_->On("DELETE", "/v2/pods/p1", 404, R"({"title":"Not Found","status":404,"detail":"gone"})");
  EXPECT_THAT(provider_->Terminate("p1"), StatusIs(Code::kNotFound));
  http_->On("DELETE", "/v2/pods/p1", 409, R"({"title":"Conflict","status":409,"detail":"busy"})");
  EXPECT_THAT(provider_->Terminate("p1"), StatusIs(Code::kUnavailable, HasSubstr("busy")));
  http_->On("DELETE", "/v2/pods/p1", 404, "<html>");
  EXPECT_FALSE(provider_->Terminate("p1").ok());
  http_->On("DELETE", "/v2/pods/p1", 500, "");
  EXPECT_FALSE(provider_->Terminate("p1").ok());
}

}  // namespace
}  // namespace gpuctl
