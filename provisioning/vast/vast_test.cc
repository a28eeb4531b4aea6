#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "provisioning/vast/vast_api.h"
#include "provisioning/vast/vast_provider.h"
#include "tests/support/matchers.h"
#include "tests/support/scripted_http.h"
#include "tests/support/shared_material.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Code = absl::StatusCode;

constexpr char kLabel[] = "gpuctl-00ff12ab-0123456789ab";
constexpr char kBlob[] = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHt0";
constexpr char kSearch[] = "/api/v0/bundles/";
constexpr char kAsk[] = "/api/v0/asks/77/";
constexpr char kKeys[] = "/api/v0/ssh/";
constexpr char kShow[] = "/api/v0/instances/312/";
constexpr char kList[] = "/api/v1/instances/?limit=25";
constexpr char kGone[] =
    R"({"success":false,"error":"no_such_instance","msg":"Instance 312 not found."})";

std::string OfferRow(const std::string& changes) {
  nlohmann::json row = nlohmann::json::parse(
      R"({"id":77,"ask_contract_id":77,"machine_id":4242,"gpu_name":"RTX 4090","num_gpus":1,
          "gpu_ram":24564,"dph_base":0.3,"dph_total":0.34,"min_bid":0.11,"inet_up_cost":0.002,
          "inet_down_cost":0.001,"reliability2":0.993,"geolocation":"California, US",
          "direct_port_count":40,"cuda_max_good":12.8,"disk_space":500.5,"cpu_cores":null,
          "rentable":true,"verification":"verified"})");
  row.merge_patch(nlohmann::json::parse(changes));
  return row.dump();
}

std::string InstanceRow(const std::string& changes) {
  nlohmann::json row = {{"id", 312},
                        {"label", kLabel},
                        {"actual_status", "running"},
                        {"cur_state", "running"},
                        {"next_state", "running"},
                        {"intended_status", "running"},
                        {"status_msg", "success, running"},
                        {"public_ipaddr", " 192.0.2.45\n"},
                        {"ports", {{"22/tcp", {{{"HostIp", "0.0.0.0"}, {"HostPort", "20000"}}}}}},
                        {"ssh_host", "ssh123.vast.ai"},
                        {"ssh_port", 10600},
                        {"machine_id", 12},
                        {"gpu_name", "A100 SXM4"},
                        {"gpu_ram", 81920},
                        {"num_gpus", 2},
                        {"dph_total", 1.8021},
                        {"start_date", 1668804745.25},
                        {"geolocation", "California, United States"},
                        {"is_bid", false}};
  // A null in the changes sets null and does not remove the field.
  const nlohmann::json parsed = nlohmann::json::parse(changes);
  for (const auto& change : parsed.items()) {
    row[change.key()] = change.value();
  }
  return row.dump();
}

class VastTest : public ::testing::Test {
 protected:
  Offer AnOffer() {
    Offer offer;
    offer.provider = "vast";
    offer.ref = "77";
    offer.description = "1 x RTX 4090";
    offer.price_usd_per_hour = 0.34;
    offer.place = "vast/4242";
    return offer;
  }
  void KeyIsThere() {
    http_->On("GET", kKeys, 200,
              R"([{"id":1,"key":")" + std::string(kBlob) + R"( other","deleted_at":null}])");
  }
  RentOptions Options() {
    RentOptions options;
    options.ssh_public_key = std::string(kBlob) + " ada@laptop";
    return options;
  }
  absl::Status RentAnswered(int status, const std::string& body) {
    http_->On("PUT", kAsk, status, body);
    return provider_->Rent(AnOffer(), {}, kLabel).status();
  }
  absl::StatusOr<Instance> DescribeAnswered(int status, const std::string& body) {
    http_->On("GET", kShow, status, body);
    return provider_->Describe("312");
  }
  std::vector<Offer> OffersAnswered(const Requirements& requirements, const std::string& rows) {
    http_->On("POST", kSearch, 200, R"({"offers":[)" + rows + "]}");
    const auto offers = provider_->ListOffers(requirements);
    EXPECT_OK(offers);
    return offers.ok() ? *offers : std::vector<Offer>();
  }
  const std::string base_ = "http://vast.test";
  std::shared_ptr<ScriptedHttp> http_ = std::make_shared<ScriptedHttp>(base_);
  std::unique_ptr<Provider> provider_ = MakeVastProvider(http_, {base_, "key-1"});
};

TEST_F(VastTest, ReadsDocumentedBodies) {
  GPUCTL_SHARED_OR_SKIP(documents, "providers/vast/doc-examples.json");
  int created = 0;
  int loading = 0;
  int lists = 0;
  for (const nlohmann::json& example : documents["examples"]) {
    const std::string body = example["json"].dump();
    if (example["json"].contains("new_contract")) {
      const auto read = ParseVastCreated(body);
      ASSERT_OK(read);
      EXPECT_TRUE(read->success);
      EXPECT_GT(*read->new_contract, 7'000'000);
      ++created;
    } else if (example["json"].contains("instances") && example["json"]["instances"].is_array()) {
      http_->On("GET", "/api/v1/instances/?limit=25", 200, body);
      const auto read = provider_->ListInstances();
      ASSERT_OK(read);
      EXPECT_TRUE(read->empty());
      ++lists;
    } else if (example["json"].contains("instances")) {
      // The body is shortened: without an id it is an error.
      EXPECT_THAT(ParseVastInstance(body), StatusIs(Code::kUnknown, HasSubstr("field id")));
      ++loading;
    }
  }
  EXPECT_EQ(created, 3);
  EXPECT_EQ(lists, 1);
  EXPECT_EQ(loading, 1);
}

TEST(VastApiTest, ReadsRecordedErrors) {
  GPUCTL_SHARED_OR_SKIP(recorded, "providers/vast/recorded-errors.json");
  const VastReply credit = ParseVastReply(recorded["create_no_credit"]["body"].dump());
  EXPECT_EQ(credit.error, "insufficient_credit");
  EXPECT_THAT(credit.message, HasSubstr("lacks credit"));
  EXPECT_FALSE(credit.success.has_value());
  EXPECT_EQ(ParseVastReply(recorded["generic_shape"]["body"].dump()).success, false);
}

TEST(VastApiTest, NamesTheFieldThatIsWrong) {
  EXPECT_THAT(ParseVastOffers(R"({"offers":[{"id":"x"}]})"),
              StatusIs(Code::kUnknown, HasSubstr("field id of offer is a JSON string")));
  // The description's own example is like this.
  EXPECT_FALSE(ParseVastOffers(R"({"offers":{"id":1}})").ok());
  EXPECT_FALSE(ParseVastInstance("{}").ok());
  EXPECT_FALSE(ParseVastInstance(R"({"success":false,"instances":null})").ok());
  const auto gone = ParseVastInstance(R"({"instances":null})");
  ASSERT_OK(gone);
  EXPECT_FALSE(gone->has_value());
  const auto odd = ParseVastInstance(R"({"instances":)" + InstanceRow(R"({"ports":[22]})") + "}");
  ASSERT_OK(odd);
  EXPECT_EQ((*odd)->ssh_host_port, 0);
  for (const char* bad :
       {R"({"public_ipaddr":"-oX=y"})", R"({"ssh_host":"-oX=y"})", R"({"ssh_port":70000})"}) {
    EXPECT_FALSE(ParseVastInstance(R"({"instances":)" + InstanceRow(bad) + "}").ok()) << bad;
  }
}

TEST_F(VastTest, OffersWhatItFinds) {
  const auto offers = OffersAnswered(
      {}, OfferRow(R"({"id":78,"dph_total":0.5,"machine_id":null})") + "," + OfferRow("{}"));
  ASSERT_EQ(offers.size(), 2u);
  const Offer& offer = offers[0];
  EXPECT_EQ(offer.ref, "77");
  EXPECT_DOUBLE_EQ(offer.price_usd_per_hour, 0.34);
  EXPECT_EQ(offer.gpu_name, "RTX-4090");
  EXPECT_EQ(offer.gpu_count, 1);
  EXPECT_EQ(offer.gpu_memory_bytes, 24564LL << 20);
  EXPECT_EQ(offer.region, "California, US");
  EXPECT_EQ(offer.cuda_version, "12.8");
  EXPECT_EQ(offer.reliability, 0.993);
  EXPECT_EQ(offer.upload_usd_per_gb, 0.002);
  EXPECT_EQ(offer.download_usd_per_gb, 0.001);
  EXPECT_FALSE(offer.disk_usd_per_gb_month.has_value());
  EXPECT_EQ(offer.place, "vast/4242");
  EXPECT_EQ(offers[1].place, "vast/offer-78");
  EXPECT_EQ(http_->request(0).rate_class, "search");
  EXPECT_TRUE(http_->request(0).repeatable);
  const nlohmann::json body = http_->body(0);
  EXPECT_EQ(body["allocated_storage"], 40);
  EXPECT_EQ(body["direct_port_count"]["gte"], 2);
  EXPECT_EQ(body["verified"]["eq"], true);
  EXPECT_EQ(body["rentable"]["eq"], true);
  EXPECT_EQ(body["order"], nlohmann::json::parse(R"([["dph_total","asc"]])"));
  EXPECT_FALSE(body.contains("type"));
}

TEST_F(VastTest, SearchesForWhatIsAskedFor) {
  Requirements requirements;
  requirements.gpus = {{"H100", 8, 0, 0}, {"", 1, 24'000'000'000, 48'000'000'000}};
  requirements.regions = {"EU", "US"};
  requirements.max_price_usd_per_hour = 20;
  requirements.disk_bytes = 100'000'000'000;
  requirements.spot = true;
  requirements.needed_for = absl::Hours(49);
  http_->On("POST", kSearch, 200, R"({"offers":[]})");
  http_->On("POST", kSearch, 200, R"({"offers":[]})");
  const auto offers = OffersAnswered(requirements, OfferRow("{}"));
  const nlohmann::json h100 = http_->body(0);
  EXPECT_EQ(h100["gpu_name"]["in"], nlohmann::json::array({"H100 SXM", "H100 PCIE", "H100 NVL"}));
  EXPECT_EQ(h100["num_gpus"]["eq"], 8);
  EXPECT_EQ(h100["type"], "bid");
  EXPECT_EQ(h100["disk_space"]["gte"], 100);
  EXPECT_EQ(h100["allocated_storage"], 100);
  EXPECT_EQ(h100["dph_total"]["lte"], 20);
  EXPECT_EQ(h100["geolocation"]["in"].size(), 28u);
  EXPECT_FALSE(h100.contains("gpu_ram"));
  EXPECT_FALSE(h100.contains("compute_cap"));
  EXPECT_EQ(h100["duration"]["gte"], 49 * 3600);
  EXPECT_EQ(h100["inet_down"]["gte"], 100);
  // Nothing came: the service may compare a code with the whole name of a place.
  EXPECT_FALSE(http_->body(1).contains("geolocation"));
  EXPECT_EQ(http_->body(1)["gpu_name"], h100["gpu_name"]);
  const nlohmann::json any = http_->body(2);
  EXPECT_FALSE(any.contains("gpu_name"));
  EXPECT_EQ(any["gpu_ram"]["gte"], 21286);
  EXPECT_EQ(any["compute_cap"]["gte"], 700);
  ASSERT_EQ(offers.size(), 1u);
  EXPECT_EQ(offers[0].ref, "77/bid/0.110000/0.040000");
  EXPECT_TRUE(offers[0].spot);
}

TEST_F(VastTest, LeavesOutWhatTheSearchLetThrough) {
  Requirements requirements;
  requirements.gpus = {{"RTX-4090", 1, 0, 0}};
  requirements.regions = {"US"};
  for (const char* changes :
       {R"({"gpu_name":"RTX 3090"})", R"({"gpu_name":"RTX 4090D"})", R"({"num_gpus":2})",
        R"({"direct_port_count":1})", R"({"verification":"deverified"})", R"({"rentable":false})",
        R"({"geolocation":"Sweden, SE"})", R"({"disk_space":10})", R"({"gpu_name":null})",
        R"({"dph_total":null})", R"({"cpu_arch":"ppc64le"})", R"({"gpu_arch":"amd"})"}) {
    EXPECT_TRUE(OffersAnswered(requirements, OfferRow(changes)).empty()) << changes;
  }
  EXPECT_EQ(OffersAnswered(requirements, OfferRow("{}")).size(), 1u);
  // Whether arm64 fits is for the client to say, which knows its programs.
  const std::vector<Offer> arm64 =
      OffersAnswered(requirements, OfferRow(R"({"cpu_arch":"arm64"})"));
  ASSERT_EQ(arm64.size(), 1u);
  EXPECT_TRUE(arm64[0].arm64);
  EXPECT_THAT(arm64[0].description, HasSubstr("arm64"));
  EXPECT_FALSE(OffersAnswered(requirements, OfferRow("{}"))[0].arm64);
  requirements.regions.clear();
  requirements.needed_for = absl::Hours(2);
  EXPECT_TRUE(OffersAnswered(requirements, OfferRow(R"({"duration":7000.5})")).empty());
  EXPECT_EQ(OffersAnswered(requirements, OfferRow(R"({"duration":7201})")).size(), 1u);
  EXPECT_EQ(OffersAnswered(requirements, OfferRow(R"({"compute_cap":610})")).size(), 1u);
  requirements.gpus = {{"", 1, 24'000'000'000, 0}};
  EXPECT_TRUE(OffersAnswered(requirements, OfferRow(R"({"compute_cap":610})")).empty());
  EXPECT_EQ(OffersAnswered(requirements, OfferRow(R"({"compute_cap":700})")).size(), 1u);
  requirements.max_price_usd_per_hour = 0.3;
  EXPECT_TRUE(OffersAnswered(requirements, OfferRow("{}")).empty());
}

TEST_F(VastTest, ListsVolumes) {
  http_->On("GET", "/api/v0/volumes/", 200, R"({"volumes":[{"id":100,"machine_id":4242,
    "host_id":7,"disk_space":15.0,"storage_total_cost":0.005,"instances":[{"id":1}]},
    {"id":101,"machine_id":12,"label":"mine","disk_space":null,"instances":[]}]})");
  const auto volumes = provider_->ListVolumes();
  ASSERT_OK(volumes);
  ASSERT_EQ(volumes->size(), 2u);
  const Volume& first = volumes->front();
  EXPECT_EQ(first.provider, "vast");
  EXPECT_EQ(first.id, "100");
  EXPECT_EQ(first.name, "V.100");
  EXPECT_EQ(first.size_bytes, 15'000'000'000);
  EXPECT_EQ(first.place, "vast/4242");
  EXPECT_EQ(first.mount_path, "/workspace");
  EXPECT_NEAR(first.usd_per_month.value(), 0.005 * 720, 1e-9);
  EXPECT_TRUE(first.in_use.value());
  EXPECT_EQ(volumes->at(1).name, "mine");
  EXPECT_FALSE(volumes->at(1).usd_per_month.has_value());
  EXPECT_EQ(http_->request(0).rate_class, "volumes");
  http_->On("GET", "/api/v0/volumes/", 200, R"({"volumes":[{"id":100}]})");
  EXPECT_THAT(provider_->ListVolumes(), StatusIs(Code::kUnknown));
}

TEST_F(VastTest, OffersTheMachineOfTheVolumeAlone) {
  Requirements requirements;
  requirements.volume.emplace();
  requirements.volume->provider = "vast";
  requirements.volume->place = "vast/4242";
  const std::vector<Offer> offers =
      OffersAnswered(requirements, OfferRow("{}") + "," + OfferRow(R"({"id":78,"machine_id":5})"));
  ASSERT_EQ(offers.size(), 1u);
  EXPECT_EQ(offers[0].place, "vast/4242");
  EXPECT_EQ(http_->body(0)["machine_id"], (nlohmann::json{{"eq", 4242}}));
}

TEST_F(VastTest, RentsWithAllThatAnInstanceNeeds) {
  KeyIsThere();
  http_->On("PUT", kAsk, 200,
            R"({"success":true,"new_contract":12345678,"instance_api_key":"secret"})");
  RentOptions options = Options();
  options.start_script = "env >> /etc/environment\n";
  options.env["EPOCHS"] = "3";
  options.disk_bytes = 60'000'000'000;
  options.volume_id = "55";
  options.volume_path = "/data/sets";
  const auto instance = provider_->Rent(AnOffer(), options, kLabel);
  ASSERT_OK(instance);
  EXPECT_EQ(instance->id, "12345678");
  EXPECT_EQ(instance->label, kLabel);
  EXPECT_EQ(instance->state, Instance::State::kStarting);
  EXPECT_EQ(instance->place, "vast/4242");
  EXPECT_FALSE(instance->spot);
  const nlohmann::json body = http_->body(1);
  EXPECT_EQ(body["client_id"], "me");
  EXPECT_EQ(body["image"], "vastai/base-image:@vastai-automatic-tag");
  EXPECT_EQ(body["disk"], 60);
  EXPECT_EQ(body["runtype"], "ssh_direct");
  EXPECT_EQ(body["label"], kLabel);
  EXPECT_EQ(body["target_state"], "running");
  EXPECT_EQ(body["cancel_unavail"], true);
  EXPECT_EQ(body["env"], (nlohmann::json{{"EPOCHS", "3"}}));
  EXPECT_EQ(body["onstart"], options.start_script);
  EXPECT_EQ(body["volume_info"]["volume_id"], 55);
  EXPECT_EQ(body["volume_info"]["mount_path"], "/data/sets");
  EXPECT_FALSE(body.contains("price"));
  EXPECT_EQ(http_->request(0).rate_class, "keys");
  EXPECT_EQ(http_->request(1).rate_class, "create");
  EXPECT_FALSE(http_->request(1).repeatable);
}

TEST_F(VastTest, ALoginTravelsInTheCreate) {
  EXPECT_TRUE(provider_->traits().takes_login);
  http_->On("PUT", kAsk, 200, R"({"success":true,"new_contract":5})");
  RentOptions options;
  options.image = "ghcr.io/ada/private:1";
  options.registry_login = RegistryLogin{"ghcr.io", "robot+ci@ada", "9d8df!fd89ufZ="};
  ASSERT_OK(provider_->Rent(AnOffer(), options, kLabel));
  EXPECT_EQ(http_->body(0)["image_login"], "-u robot+ci@ada -p 9d8df!fd89ufZ= ghcr.io");
  EXPECT_EQ(*provider_->RemoveUnusedLogins("00ff12ab"), 0);
}

TEST_F(VastTest, ALoginThatOneLineCannotHoldIsRefusedBeforeAnythingIsAsked) {
  RentOptions options;
  options.image = "ghcr.io/ada/private:1";
  for (const char* password : {"two words", "quo\"te", "quo'te", "do$llar", "back\\slash", "-p", "",
                               "new\nline", "semi;colon", "tick`", "caf\xc3\xa9", "a|b", "a*"}) {
    options.registry_login = RegistryLogin{"ghcr.io", "ada", password};
    const absl::Status status = provider_->CheckLogin(*options.registry_login);
    EXPECT_THAT(status, StatusIs(Code::kInvalidArgument, HasSubstr("password"))) << password;
    EXPECT_THAT(provider_->Rent(AnOffer(), options, kLabel), StatusIs(Code::kInvalidArgument));
    if (*password != '\0' && std::string(password) != "-p") {
      EXPECT_THAT(std::string(status.message()), Not(HasSubstr(password)));
    }
  }
  options.registry_login = RegistryLogin{"nvcr.io", "$oauthtoken", "key"};
  EXPECT_THAT(provider_->Rent(AnOffer(), options, kLabel),
              StatusIs(Code::kInvalidArgument, HasSubstr("user's name")));
  options.registry_login = RegistryLogin{"ghcr.io -p other", "ada", "key"};
  EXPECT_THAT(provider_->Rent(AnOffer(), options, kLabel), StatusIs(Code::kInvalidArgument));
  EXPECT_TRUE(http_->requests().empty());
}

TEST_F(VastTest, RegistersAKeyThatIsNotThere) {
  const std::string created = R"({"success":true,"new_contract":5})";
  http_
      ->On("GET", kKeys, 200,
           R"([{"id":1,"key":")" + std::string(kBlob) + R"(","deleted_at":"2023-01-01"}])")
      .On("POST", kKeys, 200, R"({"success":true,"key":{"id":2}})")
      .On("PUT", kAsk, 200, created);
  EXPECT_OK(provider_->Rent(AnOffer(), Options(), kLabel));
  EXPECT_EQ(http_->body(1), (nlohmann::json{{"ssh_key", kBlob}}));
  EXPECT_FALSE(http_->request(1).repeatable);
  // Without keys Vast answers 404, and somebody else registers the key first.
  http_->On("GET", kKeys, 404, R"({"success":false,"error":"not_found","msg":"No SSH keys"})")
      .On("POST", kKeys, 400, R"({"success":false,"error":"invalid_args","msg":"duplicate"})");
  KeyIsThere();
  http_->On("PUT", kAsk, 200, created);
  EXPECT_OK(provider_->Rent(AnOffer(), Options(), kLabel));
}

TEST_F(VastTest, NothingIsRentedBeforeTheCreate) {
  http_->On("GET", kKeys, 404,
            R"({"success":false,"error":"auth_error","msg":"Invalid user key"})");
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel), StatusIs(Code::kUnauthenticated));
  http_->Fail("GET", kKeys, absl::UnknownError("reset"));
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel), StatusIs(Code::kUnavailable));
  http_->On("GET", kKeys, 200, "[]").On("POST", kKeys, 500, "");
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel), StatusIs(Code::kUnavailable));
  http_->On("GET", kKeys, 200, "[]")
      .On("POST", kKeys, 400, R"({"success":false,"error":"invalid_args","msg":"bad key"})")
      .On("GET", kKeys, 200, "[]");
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel),
              StatusIs(Code::kInvalidArgument, HasSubstr("bad key")));
}

TEST_F(VastTest, BidsNoLessThanTheMachineTakes) {
  Offer spot = AnOffer();
  spot.ref = "77/bid/0.400000/0.000000";
  http_->On("PUT", kAsk, 200, R"({"success":true,"new_contract":5})");
  // The bid is the offer's price, or the lowest accepted bid.
  ASSERT_OK(provider_->Rent(spot, {}, kLabel));
  EXPECT_DOUBLE_EQ(http_->body(0)["price"].get<double>(), 0.4);
  RentOptions options;
  options.bid_usd_per_hour = 0.45;
  http_->On("PUT", kAsk, 200, R"({"success":true,"new_contract":5})");
  const auto instance = provider_->Rent(spot, options, kLabel);
  ASSERT_OK(instance);
  EXPECT_TRUE(instance->spot);
  EXPECT_DOUBLE_EQ(http_->body(1)["price"].get<double>(), 0.45);
  EXPECT_EQ(http_->body(1)["cancel_unavail"], true);
  options.bid_usd_per_hour = 0.39;
  EXPECT_THAT(provider_->Rent(spot, options, kLabel), StatusIs(Code::kInvalidArgument));
  options.bid_usd_per_hour = 200;
  EXPECT_THAT(provider_->Rent(spot, options, kLabel), StatusIs(Code::kInvalidArgument));
  EXPECT_EQ(http_->requests().size(), 2u);
}

TEST_F(VastTest, ABidIsWithoutTheDiskThatIsBilledOnTopOfIt) {
  Offer spot = AnOffer();
  spot.ref = "77/bid/0.250000/0.040000";
  RentOptions options;
  options.bid_usd_per_hour = 0.34;
  http_->On("PUT", kAsk, 200, R"({"success":true,"new_contract":5})");
  const auto instance = provider_->Rent(spot, options, kLabel);
  ASSERT_OK(instance);
  EXPECT_NEAR(http_->body(0)["price"].get<double>(), 0.30, 1e-9);
  EXPECT_NEAR(instance->price_usd_per_hour, 0.34, 1e-9);
  // The lowest accepted bid may equal the allowed price, except for rounding.
  options.bid_usd_per_hour = 0.2899995;
  http_->On("PUT", kAsk, 200, R"({"success":true,"new_contract":6})");
  ASSERT_OK(provider_->Rent(spot, options, kLabel));
  EXPECT_DOUBLE_EQ(http_->body(1)["price"].get<double>(), 0.25);
  options.bid_usd_per_hour = 0.28;
  EXPECT_THAT(provider_->Rent(spot, options, kLabel), StatusIs(Code::kInvalidArgument));
}

TEST_F(VastTest, PacksAScriptThatIsTooLongAsItIs) {
  RentOptions options;
  for (int i = 0; i < 400; ++i) options.start_script += "echo the same line again\n";
  http_->On("PUT", kAsk, 200, R"({"success":true,"new_contract":5})");
  ASSERT_OK(provider_->Rent(AnOffer(), options, kLabel));
  const std::string onstart = http_->body(0)["onstart"];
  EXPECT_LE(onstart.size(), 4096u);
  EXPECT_THAT(onstart, HasSubstr("base64 -d|gzip -d"));
  options.start_script.clear();
  uint32_t random = 1;
  for (int i = 0; i < 20'000; ++i) {
    random = random * 1664525 + 1013904223;
    options.start_script += static_cast<char>('!' + (random >> 24) % 90);
  }
  EXPECT_THAT(provider_->Rent(AnOffer(), options, kLabel),
              StatusIs(Code::kInvalidArgument, HasSubstr("Vast takes 4096")));
  EXPECT_EQ(http_->requests().size(), 1u);
}

TEST_F(VastTest, RefusalsOfACreateSayWhatToDo) {
  const auto error = [](const char* code, const char* message) {
    return nlohmann::json{{"success", false}, {"error", code}, {"msg", message}}.dump();
  };
  const struct {
    int status;
    std::string body;
    Code wanted;
  } rows[] = {
      {400, error("invalid_args", "what is that"), Code::kInvalidArgument},
      {400, error("invalid_price", "too low"), Code::kAborted},
      {400, error("no_ssh_key_for_vm", "no key"), Code::kInvalidArgument},
      {400, R"({"error":"insufficient_credit","msg":"Your account lacks credit"})",
       Code::kResourceExhausted},
      {401, error("auth_error", "Invalid user key"), Code::kUnauthenticated},
      {404, error("auth_error", "Invalid user key"), Code::kUnauthenticated},
      {404, R"({"msg":"Session expired"})", Code::kUnauthenticated},
      {403, error("invalid_args", "not your own"), Code::kPermissionDenied},
      {404, error("invalid_args", "error 404/3603: no_such_ask Instance type by id 77"),
       Code::kAborted},
      {410, error("no_such_ask", "no longer available"), Code::kAborted},
      {200, error("no_such_ask", "no longer available"), Code::kAborted},
      {200, error("invalid_args", "what is that"), Code::kInvalidArgument},
      {200, error("something_new", "what is that"), Code::kUnknown},
      {429, R"({"detail":"API requests too frequent endpoint threshold=4.5"})", Code::kUnavailable},
      {429, "too fast", Code::kUnavailable},
      {500, error("x", "y"), Code::kUnknown},
      {502, "<html>", Code::kUnknown},
      {200, R"({"success":true})", Code::kUnknown},
      {200, R"({"success":true,"new_contract":)", Code::kUnknown},
      {200, R"({"success":true,"new_contract":"x"})", Code::kUnknown},
  };
  for (const auto& row : rows) {
    EXPECT_THAT(RentAnswered(row.status, row.body), StatusIs(row.wanted)) << row.body;
  }
  EXPECT_THAT(RentAnswered(429, rows[13].body), StatusIs(Code::kUnavailable, HasSubstr("4.5")));
  http_->Fail("PUT", kAsk, absl::DeadlineExceededError("30 s"));
  EXPECT_THAT(provider_->Rent(AnOffer(), {}, kLabel), StatusIs(Code::kDeadlineExceeded));
}

TEST_F(VastTest, EndsWhatAFailingCreateHasLeft) {
  const std::string left =
      R"({"success":false,"error":"invalid_price","msg":"bid too low","new_contract":312})";
  http_->On("PUT", kAsk, 400, left)
      .On("DELETE", kShow, 200, R"({"success":true})")
      .On("GET", kShow, 200, R"({"instances":null})");
  EXPECT_THAT(provider_->Rent(AnOffer(), {}, kLabel),
              StatusIs(Code::kAborted, HasSubstr("instance 312")));
  http_->On("PUT", kAsk, 400, left).On("DELETE", kShow, 500, "");
  EXPECT_THAT(provider_->Rent(AnOffer(), {}, kLabel),
              StatusIs(Code::kUnknown, HasSubstr("instance 312")));
  http_->On("PUT", kAsk, 200, left)
      .On("DELETE", kShow, 200, R"({"success":true})")
      .On("GET", kShow, 200, R"({"instances":)" + InstanceRow("{}") + "}");
  EXPECT_THAT(provider_->Rent(AnOffer(), {}, kLabel),
              StatusIs(Code::kUnknown, HasSubstr("instance 312")));
}

TEST_F(VastTest, DescribesByTheMachinesOwnAddress) {
  const auto instance = DescribeAnswered(200, R"({"instances":)" + InstanceRow("{}") + "}");
  ASSERT_OK(instance);
  EXPECT_EQ(instance->state, Instance::State::kRunning);
  EXPECT_EQ(instance->address->host, "192.0.2.45");
  EXPECT_EQ(instance->address->port, 20000);
  EXPECT_EQ(instance->address->user, "root");
  EXPECT_EQ(instance->gpu_name, "A100-80GB");
  EXPECT_EQ(instance->gpu_count, 2);
  EXPECT_DOUBLE_EQ(instance->price_usd_per_hour, 1.8021);
  EXPECT_EQ(instance->created_ms, 1668804745250);
  EXPECT_EQ(instance->place, "vast/12");
  EXPECT_EQ(instance->label, kLabel);
  EXPECT_EQ(http_->request(0).rate_class, "show");
}

TEST_F(VastTest, AMachineWithoutOpenPortsIsReachedByTheRelay) {
  for (const char* changes : {R"({"ports":null})", R"({"ports":{"8080/tcp":null}})",
                              R"({"ports":{},"public_ipaddr":null})"}) {
    const auto relayed = DescribeAnswered(200, R"({"instances":)" + InstanceRow(changes) + "}");
    ASSERT_OK(relayed);
    EXPECT_EQ(relayed->state, Instance::State::kRunning) << changes;
    ASSERT_TRUE(relayed->address.has_value()) << changes;
    EXPECT_EQ(relayed->address->host, "ssh123.vast.ai");
    EXPECT_EQ(relayed->address->port, 10600);
    EXPECT_TRUE(relayed->relayed);
  }
  const auto jupyter = DescribeAnswered(
      200, R"({"instances":)" +
               InstanceRow(R"({"ports":null,"image_runtype":"jupyter_proxy ssh_proxy"})") + "}");
  ASSERT_OK(jupyter);
  EXPECT_EQ(jupyter->address->port, 10601);
  const auto direct = DescribeAnswered(200, R"({"instances":)" + InstanceRow("{}") + "}");
  ASSERT_OK(direct);
  EXPECT_FALSE(direct->relayed);
}

TEST_F(VastTest, ReadsItsManyStates) {
  const struct {
    const char* changes;
    Instance::State state;
  } rows[] = {
      {R"({"actual_status":null,"cur_state":"stopped"})", Instance::State::kStarting},
      {R"({"actual_status":null,"cur_state":"stopped","next_state":"stopped"})",
       Instance::State::kFailed},
      {R"({"actual_status":"created"})", Instance::State::kStarting},
      {R"({"actual_status":"created","status_msg":"Error: OCI runtime create failed: x"})",
       Instance::State::kFailed},
      {R"({"actual_status":"loading"})", Instance::State::kStarting},
      {R"({"actual_status":"loading","status_msg":"OCI runtime create failed"})",
       Instance::State::kStarting},
      {R"({"actual_status":"loading","cur_state":"stopped"})", Instance::State::kFailed},
      {R"({"actual_status":"rebooting"})", Instance::State::kStarting},
      {R"({"actual_status":"frozen"})", Instance::State::kStarting},
      {R"({"actual_status":"running","ports":null,"ssh_host":null})", Instance::State::kStarting},
      {R"({"actual_status":"running","ports":{},"ssh_port":null})", Instance::State::kStarting},
      {R"({"actual_status":"running","public_ipaddr":null,"ssh_host":""})",
       Instance::State::kStarting},
      {R"({"actual_status":"running","intended_status":"stopped"})", Instance::State::kStopping},
      {R"({"actual_status":"stopped"})", Instance::State::kFailed},
      {R"({"actual_status":"exited"})", Instance::State::kFailed},
      {R"({"actual_status":"unknown"})", Instance::State::kSilent},
      {R"({"actual_status":"offline"})", Instance::State::kSilent},
  };
  for (const auto& row : rows) {
    const auto instance =
        DescribeAnswered(200, R"({"instances":)" + InstanceRow(row.changes) + "}");
    ASSERT_OK(instance);
    EXPECT_EQ(instance->state, row.state) << row.changes;
    EXPECT_FALSE(instance->address.has_value());
  }
  const auto outbid = DescribeAnswered(
      200, R"({"instances":)" +
               InstanceRow(R"({"actual_status":"stopped","cur_state":"stopped","is_bid":true})") +
               "}");
  ASSERT_OK(outbid);
  EXPECT_THAT(outbid->status, StartsWith("stopped, outbid"));
  EXPECT_TRUE(outbid->spot);
}

TEST_F(VastTest, AStoppedMachineCostsItsDiskAndTrafficHasPrices) {
  const auto price = [this](const char* changes) {
    return DescribeAnswered(200, R"({"instances":)" + InstanceRow(changes) + "}");
  };
  const auto running = price(
      R"({"dph_total":0.5,"storage_total_cost":0.02,"inet_up_cost":0.003,"inet_down_cost":null})");
  ASSERT_OK(running);
  EXPECT_DOUBLE_EQ(running->price_usd_per_hour, 0.5);
  EXPECT_EQ(running->upload_usd_per_gb, 0.003);
  EXPECT_EQ(running->download_usd_per_gb, std::nullopt);
  const auto stopped =
      price(R"({"dph_total":0.5,"storage_total_cost":0.02,"actual_status":"stopped"})");
  ASSERT_OK(stopped);
  EXPECT_DOUBLE_EQ(stopped->price_usd_per_hour, 0.02);
}

TEST_F(VastTest, TellsWhenAHostTakesItsMachineBack) {
  const auto ends = [this](const char* changes) {
    return DescribeAnswered(200, R"({"instances":)" + InstanceRow(changes) + "}");
  };
  EXPECT_EQ(ends(R"({"end_date":1761008618.5})")->ends_ms, 1761008618500);
  for (const char* none : {R"({"end_date":null})", R"({"end_date":0})", R"({"end_date":-5})",
                           R"({"end_date":1e300})"}) {
    EXPECT_EQ(ends(none)->ends_ms, 0) << none;
  }
}

TEST_F(VastTest, GoneIsWhatVastSaysIsGone) {
  EXPECT_THAT(DescribeAnswered(200, R"({"instances":null})"), StatusIs(Code::kNotFound));
  EXPECT_THAT(DescribeAnswered(404, kGone), StatusIs(Code::kNotFound));
  EXPECT_THAT(DescribeAnswered(404, R"({"success":false,"error":"not_found","msg":"x"})"),
              StatusIs(Code::kNotFound));
  EXPECT_THAT(DescribeAnswered(404, R"({"success":false,"error":"auth_error","msg":"x"})"),
              StatusIs(Code::kUnauthenticated));
  EXPECT_THAT(DescribeAnswered(404, R"({"msg":"Session expired"})"),
              StatusIs(Code::kUnauthenticated));
  EXPECT_THAT(DescribeAnswered(404, "<html>"), StatusIs(Code::kUnknown));
  EXPECT_THAT(DescribeAnswered(200, "{}"), StatusIs(Code::kUnknown));
  EXPECT_THAT(DescribeAnswered(410, R"({"success":false,"error":"deprecated_endpoint"})"),
              StatusIs(Code::kFailedPrecondition));
  EXPECT_THAT(DescribeAnswered(500, ""), StatusIs(Code::kUnavailable));
  EXPECT_THAT(DescribeAnswered(200, R"({"instances":)" + InstanceRow(R"({"id":313})") + "}"),
              StatusIs(Code::kUnknown));
  EXPECT_THAT(provider_->Describe("no-such-instance"), StatusIs(Code::kNotFound));
}

TEST_F(VastTest, ListsAllPagesOrFails) {
  const std::string one = InstanceRow("{}");
  const std::string two = InstanceRow(R"({"id":313,"label":null})");
  http_
      ->On("GET", kList, 200,
           R"({"instances":[)" + one + R"(],"next_token":"e=1","total_instances":2})")
      .On("GET", std::string(kList) + "&after_token=e%3D1", 200,
          R"({"instances":[)" + two + R"(],"next_token":null,"total_instances":2})");
  const auto all = provider_->ListInstances();
  ASSERT_OK(all);
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ(all->at(1).id, "313");
  EXPECT_EQ(all->at(1).label, "");
  EXPECT_EQ(http_->request(0).rate_class, "list");
  // One page is missing.
  http_->On("GET", kList, 200,
            R"({"instances":[)" + one + R"(],"next_token":null,"total_instances":2})");
  EXPECT_THAT(provider_->ListInstances(), StatusIs(Code::kUnavailable, HasSubstr("there are 2")));
  const std::string loop = R"({"instances":[)" + one + R"(],"next_token":"e"})";
  http_->On("GET", kList, 200, loop).On("GET", std::string(kList) + "&after_token=e", 200, loop);
  EXPECT_THAT(provider_->ListInstances(), StatusIs(Code::kUnknown, HasSubstr("twice")));
  http_->On("GET", kList, 410, R"({"success":false,"error":"deprecated_endpoint"})");
  EXPECT_THAT(provider_->ListInstances(), StatusIs(Code::kFailedPrecondition));
  for (const char* body : {"{}", "[]", "<html>", R"({"instances":null})", R"({"instances":[{}]})",
                           R"({"success":false,"instances":[]})"}) {
    http_->On("GET", kList, 200, body);
    EXPECT_FALSE(provider_->ListInstances().ok()) << body;
  }
}

TEST_F(VastTest, TerminatesOnlyWhatIsConfirmed) {
  http_->On("DELETE", kShow, 200, R"({"success":true,"msg":"ok"})");
  EXPECT_OK(provider_->Terminate("312"));
  EXPECT_EQ(http_->request(0).rate_class, "destroy");
  EXPECT_TRUE(http_->request(0).repeatable);
  http_->On("DELETE", kShow, 404, kGone);
  EXPECT_THAT(provider_->Terminate("312"), StatusIs(Code::kNotFound));
  http_->On("DELETE", kShow, 200, kGone);
  EXPECT_THAT(provider_->Terminate("312"), StatusIs(Code::kNotFound));
  http_->On("DELETE", kShow, 200, R"({"success":false,"error":"x","msg":"busy"})");
  EXPECT_FALSE(provider_->Terminate("312").ok());
  http_->On("DELETE", kShow, 200, "<html>");
  EXPECT_FALSE(provider_->Terminate("312").ok());
  http_->On("DELETE", kShow, 404, R"({"success":false,"error":"auth_error","msg":"x"})");
  EXPECT_THAT(provider_->Terminate("312"), StatusIs(Code::kUnauthenticated));
  http_->On("DELETE", kShow, 429, "slow");
  EXPECT_THAT(provider_->Terminate("312"), StatusIs(Code::kUnavailable));
  EXPECT_THAT(provider_->Terminate("../v1"), StatusIs(Code::kInvalidArgument));
}

TEST_F(VastTest, AttachesAKeyToAnInstance) {
  constexpr char kAttach[] = "/api/v0/instances/312/ssh/";
  http_->On("POST", kAttach, 200, R"({"success":true,"msg":"SSH key added to instance."})");
  EXPECT_OK(provider_->AttachKey("312", std::string(kBlob) + " ada@laptop"));
  EXPECT_EQ(http_->body(0), (nlohmann::json{{"ssh_key", kBlob}}));
  EXPECT_EQ(http_->request(0).rate_class, "keys");
  http_->On("POST", kAttach, 404, kGone);
  EXPECT_THAT(provider_->AttachKey("312", kBlob), StatusIs(Code::kNotFound));
  http_->On("POST", kAttach, 200, R"({"success":false,"error":"x","msg":"not for VMs"})");
  EXPECT_FALSE(provider_->AttachKey("312", kBlob).ok());
  EXPECT_THAT(provider_->AttachKey("../v1", kBlob), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(provider_->AttachKey("312", "no key"), StatusIs(Code::kInvalidArgument));
}

constexpr char kRises[] = "/api/v0/instances/pending-price-increases/";

std::string RiseList(const std::string& changes) {
  nlohmann::json row = {{"pending_price_increase_id", 999},
                        {"contract_id", 312},
                        {"host_id", 7},
                        {"new_gpu_costpersec", 0.0002},
                        {"old_gpu_costpersec", 0.0001},
                        {"new_disk_ram_costpersec", nullptr},
                        {"old_disk_ram_costpersec", 0.01},
                        {"new_bwu_cost", nullptr},
                        {"new_bwd_cost", 0.02},
                        {"old_bwd_cost", 0.01},
                        {"contract_end_date", 1.7e9},
                        {"ask_end_date", nullptr}};
  const nlohmann::json parsed = nlohmann::json::parse(changes);
  for (const auto& change : parsed.items()) row[change.key()] = change.value();
  return R"({"success":true,"count":1,"truncated":false,"pending_price_increases":[)" + row.dump() +
         "]}";
}

TEST_F(VastTest, TellsPriceRisesByTheirRatios) {
  const struct {
    const char* rise;
    const char* instance;
    double after;
  } rows[] = {
      {"{}", R"({"dph_total":1.0,"dph_base":0.75})", 1.75},
      {R"({"new_disk_ram_costpersec":0.03})", R"({"dph_total":1.0,"dph_base":0.75})", 2.25},
      // The parts are not known, so all of it rises.
      {"{}", R"({"dph_total":1.0,"dph_base":null})", 2.0},
      {R"({"new_gpu_costpersec":null})", R"({"dph_total":1.0,"dph_base":0.75})", 1.0},
      // It is not known.
      {R"({"old_gpu_costpersec":null})", R"({"dph_total":1.0,"dph_base":0.75})", 0},
  };
  for (const auto& row : rows) {
    http_->On("GET", kRises, 200, RiseList(row.rise))
        .On("GET", kShow, 200, R"({"instances":)" + InstanceRow(row.instance) + "}");
    const auto rises = provider_->ListPriceRises();
    ASSERT_OK(rises);
    ASSERT_EQ(rises->size(), 1u);
    const PriceRise& rise = rises->front();
    EXPECT_EQ(rise.id, "999");
    EXPECT_EQ(rise.instance_id, "312");
    EXPECT_DOUBLE_EQ(rise.before_usd_per_hour, 1.0);
    EXPECT_DOUBLE_EQ(rise.after_usd_per_hour, row.after) << row.rise << row.instance;
    EXPECT_EQ(rise.from_ms, 1'700'000'000'000);
    EXPECT_EQ(rise.also, "download from $0.0100 to $0.0200 a GB");
  }
  EXPECT_EQ(http_->request(0).rate_class, "prices");
  // One instance has ended meanwhile.
  http_->On("GET", kRises, 200, RiseList("{}")).On("GET", kShow, 200, R"({"instances":null})");
  const auto none = provider_->ListPriceRises();
  ASSERT_OK(none);
  EXPECT_TRUE(none->empty());
  for (const char* body : {"{}", R"({"pending_price_increases":null})", "<html>",
                           R"({"pending_price_increases":[],"truncated":true})",
                           R"({"pending_price_increases":[{"contract_id":1}]})",
                           R"({"success":false,"pending_price_increases":[]})"}) {
    http_->On("GET", kRises, 200, body);
    EXPECT_FALSE(provider_->ListPriceRises().ok()) << body;
  }
}

TEST_F(VastTest, AnswersAPriceRiseWithItsIdAlone) {
  constexpr char kAccept[] = "/api/v0/instances/accept-price-increase/";
  constexpr char kReject[] = "/api/v0/instances/reject-price-increase/";
  constexpr char kDone[] = R"({"success":true,"pending_price_increase_id":999,"contract_id":312})";
  PriceRise rise;
  rise.id = "999";
  rise.instance_id = "312";
  http_->On("PUT", kAccept, 200, kDone).On("PUT", kReject, 200, kDone);
  EXPECT_OK(provider_->AnswerPriceRise(rise, /*accept=*/true));
  EXPECT_OK(provider_->AnswerPriceRise(rise, /*accept=*/false));
  for (size_t i : {0u, 1u}) {
    EXPECT_EQ(http_->body(i), (nlohmann::json{{"pending_price_increase_id", 999}}));
    EXPECT_FALSE(http_->request(i).repeatable);
  }
  http_->On("PUT", kAccept, 404, R"({"success":false,"error":"no_pending_price_increase"})");
  EXPECT_THAT(provider_->AnswerPriceRise(rise, true), StatusIs(Code::kNotFound));
  http_->On("PUT", kAccept, 409, "{}");
  EXPECT_THAT(provider_->AnswerPriceRise(rise, true), StatusIs(Code::kNotFound));
  http_->On("PUT", kAccept, 400, R"({"success":false,"error":"invalid_args","msg":"extra"})");
  EXPECT_THAT(provider_->AnswerPriceRise(rise, true), StatusIs(Code::kInvalidArgument));
  http_->On("PUT", kAccept, 200, "{}");
  EXPECT_FALSE(provider_->AnswerPriceRise(rise, true).ok());
  rise.id = "x";
  EXPECT_THAT(provider_->AnswerPriceRise(rise, true), StatusIs(Code::kInvalidArgument));
}

}  // namespace
}  // namespace gpuctl
