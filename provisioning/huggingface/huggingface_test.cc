#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "provisioning/huggingface/huggingface_provider.h"
#include "tests/support/matchers.h"
#include "tests/support/scripted_http.h"
#include "tests/support/stepping_clock.h"

namespace gpuctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Code = absl::StatusCode;
using State = Instance::State;

constexpr char kLabel[] = "gpuctl-00ff12ab-0123456789ab";
constexpr char kWhoami[] = "/api/whoami-v2";
constexpr char kHardware[] = "/api/jobs/hardware";
constexpr char kJobs[] = "/api/jobs/ada";
constexpr char kList[] = "/api/jobs/ada?stage=RUNNING&stage=SCHEDULING";
constexpr char kId[] = "66f0c1d2e3a4b5c6d7e8f901";
constexpr char kJob[] = "/api/jobs/ada/66f0c1d2e3a4b5c6d7e8f901";
constexpr char kAda[] = R"({"type":"user","id":"u-1","name":"ada","canPay":true,"orgs":[]})";

std::string FlavorRow(const std::string& name, const std::string& model, int count,
                      const std::string& vram, double usd, const std::string& unit = "minute") {
  return absl::StrCat(R"({"name":")", name, R"(","prettyName":"x","cpu":"4 vCPU","ram":"15 GB",)",
                      R"("ephemeralStorage":"110 GB","accelerator":{"type":"gpu","model":")", model,
                      R"(","quantity":")", count, R"(","vram":")", vram,
                      R"(","manufacturer":"Nvidia"},"unitCostMicroUSD":)", usd * 1e6,
                      R"(,"unitCostUSD":)", usd, R"(,"unitLabel":")", unit, R"("})");
}

// A job as the market tells it; `more` are fields before the rest, `status` those after the stage.
std::string JobRow(const std::string& stage, const std::string& more = "",
                   const std::string& status = "", const std::string& id = kId) {
  return R"({"id":")" + id + R"(","createdAt":"2026-03-13T20:00:00.000Z","flavor":"a10g-small",)" +
         more + R"("status":{"stage":")" + stage + R"(","message":null)" + status + "}}";
}

const std::string kSsh = absl::StrCat(R"(,"sshUrl":"ssh://)", kId, R"(@ssh.hf.jobs")");

std::string Said(const std::string& words) { return R"({"error":")" + words + R"("})"; }

class HuggingfaceTest : public ::testing::Test {
 protected:
  Offer AnOffer() {
    Offer offer;
    offer.provider = "huggingface";
    offer.ref = "a10g-small";
    offer.description = "1x A10G (a10g-small)";
    offer.price_usd_per_hour = 1;
    offer.disk_bytes = 110'000'000'000;
    return offer;
  }
  RentOptions Options() {
    RentOptions options;
    options.start_script = "#!/bin/sh\nsleep 9\n";
    options.expires_at = clock_.Now() + absl::Hours(4);
    return options;
  }
  void OnWhoami(const std::string& body = kAda) { http_->On("GET", kWhoami, 200, body); }
  absl::StatusOr<Instance> RentAnswered(int status, const std::string& body) {
    if (!known_) OnWhoami();
    known_ = true;
    http_->On("POST", kJobs, status, body);
    return provider_->Rent(AnOffer(), Options(), kLabel);
  }
  absl::StatusOr<Instance> DescribeAnswered(int status, const std::string& body) {
    if (!known_) OnWhoami();
    known_ = true;
    http_->On("GET", kJob, status, body);
    return provider_->Describe(kId);
  }
  const std::string base_ = "http://huggingface.test";
  std::shared_ptr<ScriptedHttp> http_ = std::make_shared<ScriptedHttp>(base_);
  SteppingClock clock_;
  std::unique_ptr<Provider> provider_ = MakeHuggingfaceProvider(http_, {base_, "hf_key"}, clock_);
  bool known_ = false;  // the account was asked for
};

TEST_F(HuggingfaceTest, OffersEachFlavorWithTheMemoryOfOneGpuAndThePriceOfAnHour) {
  OnWhoami();
  http_->On(
      "GET", kHardware, 200,
      "[" + FlavorRow("l4x4", "L4", 4, "96 GB", 0.0633) + "," +
          FlavorRow("a10g-small", "A10G", 1, "24 GB", 0.016667) + "," +
          FlavorRow("t4-small", "T4", 1, "16 GB", 0.0067) + "," +
          FlavorRow("odd", "T4", 1, "16 parsecs", 0.001) + "," +
          FlavorRow("days", "T4", 1, "16 GB", 0.001, "day") + "," +
          R"({"name":"cpu-basic","accelerator":null,"unitCostUSD":0.0002,"unitLabel":"minute"},
                   {"name":"inf2x6","accelerator":{"type":"neuron","model":"Inferentia2",
                    "quantity":"6","vram":"192 GB","manufacturer":"AWS"},"unitCostUSD":0.2,
                    "unitLabel":"minute"}])");
  const auto offers = provider_->ListOffers({});
  ASSERT_OK(offers);
  ASSERT_EQ(offers->size(), 2u);  // nobody asked for four
  EXPECT_EQ(offers->at(0).ref, "t4-small");
  const Offer& a10g = offers->at(1);
  EXPECT_EQ(a10g.ref, "a10g-small");
  EXPECT_EQ(a10g.gpu_name, "A10G");
  EXPECT_EQ(a10g.gpu_memory_bytes, 24LL << 30);
  EXPECT_NEAR(a10g.price_usd_per_hour, 1.00002, 1e-9);
  EXPECT_EQ(a10g.disk_bytes, 110'000'000'000);
  EXPECT_EQ(a10g.place, "huggingface/a10g-small");
  EXPECT_FALSE(a10g.takes_volume);
  Requirements four;
  four.gpus = {{"L4", 4, 24LL << 30}};
  http_->On("GET", kHardware, 200, "[" + FlavorRow("l4x4", "L4", 4, "96 GB", 0.0633) + "]");
  const auto many = provider_->ListOffers(four);
  ASSERT_OK(many);
  ASSERT_EQ(many->size(), 1u);
  EXPECT_EQ(many->front().gpu_memory_bytes, 24LL << 30);
  EXPECT_EQ(many->front().gpu_count, 4);
}

TEST_F(HuggingfaceTest, AnswersAboutPricesThatLieAreNotBelieved) {
  OnWhoami();
  // The two numbers of a price differ: the dearer one counts.
  http_->On("GET", kHardware, 200,
            R"([{"name":"t4-small","accelerator":{"type":"gpu","model":"T4","quantity":"1",
                "vram":"16 GB"},"unitCostMicroUSD":6667,"unitCostUSD":0.0001,
                "unitLabel":"minute"}])");
  EXPECT_NEAR(provider_->ListOffers({})->front().price_usd_per_hour, 0.40002, 1e-9);
  http_->On("GET", kHardware, 200,
            "[" + FlavorRow("a10g-small", "A10G", 1, "24 GB", 1, "hour") + "]");
  EXPECT_THAT(provider_->ListOffers({}), StatusIs(Code::kUnknown, HasSubstr("one \"hour\"")));
  http_->On("GET", kHardware, 200, "[" + FlavorRow("free", "T4", 1, "16 GB", 0) + "]");
  EXPECT_TRUE(provider_->ListOffers({})->empty());
  for (const char* body : {"{}", "<html>", "[{}]", "[7]", R"([{"name":"a","unitCostUSD":"1"}])",
                           R"([{"name":"a","accelerator":{"quantity":[]}}])"}) {
    http_->On("GET", kHardware, 200, body);
    EXPECT_THAT(provider_->ListOffers({}), StatusIs(Code::kUnknown)) << body;
  }
  // Nothing there is interruptible, has a volume, or says where it is.
  Requirements spot;
  spot.spot = true;
  EXPECT_TRUE(provider_->ListOffers(spot)->empty());
}

TEST_F(HuggingfaceTest, AnAccountThatCannotPayIsToldBeforeAnythingIsRented) {
  OnWhoami(R"({"id":"u-1","name":"ada","canPay":false})");
  EXPECT_THAT(provider_->ListOffers({}),
              StatusIs(Code::kResourceExhausted, HasSubstr("ada cannot pay yet")));
  // The account was asked for once.
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel), StatusIs(Code::kResourceExhausted));
  EXPECT_EQ(http_->requests().size(), 1u);
  // What bills can be seen and ended all the same.
  http_->On("GET", kList, 200, "[]");
  EXPECT_TRUE(provider_->ListInstances()->empty());
}

TEST_F(HuggingfaceTest, ATokenThatMayOnlyReadIsToldBeforeAnythingIsRented) {
  OnWhoami(R"({"id":"u-1","name":"ada","auth":{"accessToken":{"role":"read"}}})");
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel),
              StatusIs(Code::kPermissionDenied, HasSubstr("may only read")));
}

TEST_F(HuggingfaceTest, ANamespaceThatIsNoneIsNoPartOfAPath) {
  for (const char* body : {R"({"id":"u","name":"../x"})", R"({"id":"u","name":""})",
                           R"({"name":"ada"})", "[]", "<html>", R"({"id":"u","name":7})"}) {
    OnWhoami(body);
    EXPECT_THAT(provider_->ListInstances(), StatusIs(Code::kUnknown)) << body;
  }
  // Without an account nothing is sent, and nothing is gone.
  http_->On("GET", kWhoami, 404, Said("not found"));
  EXPECT_THAT(provider_->Describe(kId), StatusIs(Code::kUnknown));
  http_->On("GET", kWhoami, 401, Said("Invalid credentials in Authorization header"));
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel), StatusIs(Code::kUnauthenticated));
  http_->On("GET", kWhoami, 502, "<html>");
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel), StatusIs(Code::kUnavailable));
}

TEST_F(HuggingfaceTest, RentsAJobThatEndsAtItsTime) {
  const auto rented = RentAnswered(200, JobRow("SCHEDULING", R"("timeout":14400,)"));
  ASSERT_OK(rented);
  EXPECT_EQ(rented->id, kId);
  EXPECT_EQ(rented->label, kLabel);
  EXPECT_EQ(rented->place, "");  // the offer's
  EXPECT_EQ(rented->ends_ms, 1773432000000 + 14400'000);
  EXPECT_EQ(http_->header(1, "Authorization"), "Bearer hf_key");
  EXPECT_TRUE(http_->request(1).creates);
  const nlohmann::json body = http_->body(1);
  EXPECT_EQ(body["flavor"], "a10g-small");
  EXPECT_EQ(body["timeoutSeconds"], 14400);
  EXPECT_EQ(body["ssh"]["enabled"], true);
  EXPECT_EQ(body["command"], nlohmann::json({"sh", "-c", "#!/bin/sh\nsleep 9\n"}));
  EXPECT_EQ(body["labels"]["name"], kLabel);
  EXPECT_EQ(body["labels"]["gpuctl-lease"], kLabel);
  EXPECT_EQ(body["labels"]["gpuctl-ends"], absl::StrCat(absl::ToUnixSeconds(clock_.Now()) + 14400));
  EXPECT_THAT(body["dockerImage"].get<std::string>(), HasSubstr("pytorch/pytorch"));
}

TEST_F(HuggingfaceTest, NoJobIsWithoutATime) {
  OnWhoami();
  RentOptions options = Options();
  options.expires_at = absl::InfiniteFuture();
  options.start_script = "";
  options.image = "ghcr.io/ada/tool:1";
  Offer newest = AnOffer();
  newest.ref = "rtx-pro-6000x2";
  http_->On("POST", kJobs, 200, JobRow("SCHEDULING"));
  ASSERT_OK(provider_->Rent(newest, options, kLabel));
  EXPECT_EQ(http_->body(1)["timeoutSeconds"], 24 * 3600);
  EXPECT_EQ(http_->body(1)["dockerImage"], "ghcr.io/ada/tool:1");
  // A container without a command of ours would end at once.
  EXPECT_THAT(http_->body(1)["command"].dump(), HasSubstr("while"));
  options = Options();
  options.expires_at += absl::Milliseconds(1);
  http_->On("POST", kJobs, 200, JobRow("SCHEDULING"));
  ASSERT_OK(provider_->Rent(newest, options, kLabel));
  EXPECT_EQ(http_->body(2)["timeoutSeconds"], 14401);  // never too soon
  EXPECT_THAT(http_->body(2)["dockerImage"].get<std::string>(), HasSubstr("cuda12.8"));
  options.expires_at = clock_.Now();
  EXPECT_THAT(provider_->Rent(newest, options, kLabel), StatusIs(Code::kInvalidArgument));
}

TEST_F(HuggingfaceTest, RefusesWhatCannotWorkBeforeAsking) {
  Offer foreign = AnOffer();
  foreign.ref = "no/flavor";
  EXPECT_THAT(provider_->Rent(foreign, Options(), kLabel), StatusIs(Code::kInvalidArgument));
  RentOptions options = Options();
  options.registry_login = RegistryLogin{"ghcr.io", "ada", "pass-word-1"};
  EXPECT_THAT(
      provider_->Rent(AnOffer(), options, kLabel),
      StatusIs(Code::kInvalidArgument, AllOf(HasSubstr("ghcr.io"), Not(HasSubstr("pass")))));
  options = Options();
  options.volume_id = "v";
  EXPECT_THAT(provider_->Rent(AnOffer(), options, kLabel), StatusIs(Code::kInvalidArgument));
  options = Options();
  options.disk_bytes = 111'000'000'000;
  EXPECT_THAT(provider_->Rent(AnOffer(), options, kLabel), StatusIs(Code::kInvalidArgument));
  for (const char* name : {"1A", "A-B", ""}) {
    options = Options();
    options.env[name] = "v";
    EXPECT_THAT(provider_->Rent(AnOffer(), options, kLabel), StatusIs(Code::kInvalidArgument))
        << name;
  }
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), "a b"), StatusIs(Code::kInvalidArgument));
  EXPECT_TRUE(http_->requests().empty());
}

TEST_F(HuggingfaceTest, ARefusalSaysWhatItMeans) {
  const struct {
    int status;
    std::string words;
    Code wanted;
  } rows[] = {
      {400, "Invalid flavor", Code::kInvalidArgument},
      {401, "Invalid credentials in Authorization header", Code::kUnauthenticated},
      {402, "Pre-paid credit balance is insufficient", Code::kResourceExhausted},
      {403, "You don't have the required permissions", Code::kPermissionDenied},
      {403, "You have reached the limit of concurrent jobs", Code::kResourceExhausted},
      {404, "Not found", Code::kInvalidArgument},
      {409, "conflict", Code::kAborted},
      {422, "This flavor is currently not available", Code::kAborted},
      {429, "We had to rate limit you", Code::kUnavailable},
      {500, "Internal Server Error", Code::kUnknown},
      {503, "Service Unavailable", Code::kUnknown},
  };
  for (const auto& row : rows) {
    EXPECT_THAT(RentAnswered(row.status, Said(row.words)),
                StatusIs(row.wanted, HasSubstr(row.words)));
  }
  http_->On("POST", kJobs, 402, "",
            {{"x-error-code", "PaymentRequired"}, {"x-error-message", "Add pre-paid credits"}});
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel),
              StatusIs(Code::kResourceExhausted, HasSubstr("Add pre-paid credits")));
}

TEST_F(HuggingfaceTest, AJobThatWasEndedAtOnceIsNotRented) {
  EXPECT_THAT(RentAnswered(200, JobRow("CANCELED", "", R"(,"cancelReason":"NO_CREDITS")")),
              StatusIs(Code::kResourceExhausted, HasSubstr("NO_CREDITS")));
  EXPECT_THAT(RentAnswered(200, JobRow("ERROR")), StatusIs(Code::kAborted, HasSubstr("ERROR")));
}

TEST_F(HuggingfaceTest, WhatMayHaveMadeAJobIsUnknown) {
  for (const char* body : {"<html>", "{}", "[]", R"({"id":"","status":{"stage":"SCHEDULING"}})",
                           R"({"id":7,"status":{"stage":"SCHEDULING"}})", R"({"id":"x"})"}) {
    EXPECT_THAT(RentAnswered(200, body), StatusIs(Code::kUnknown)) << body;
  }
  http_->Fail("POST", kJobs, absl::DeadlineExceededError("30 s"));
  EXPECT_THAT(provider_->Rent(AnOffer(), Options(), kLabel), StatusIs(Code::kDeadlineExceeded));
}

TEST_F(HuggingfaceTest, AJobIsWhatItsStageSays) {
  const auto running = DescribeAnswered(200, JobRow("RUNNING", "", kSsh));
  ASSERT_OK(running);
  EXPECT_EQ(running->state, State::kRunning);
  EXPECT_EQ(running->address.value().host, "ssh.hf.jobs");
  EXPECT_EQ(running->address->user, kId);
  EXPECT_EQ(running->address->port, 22);
  EXPECT_EQ(running->place, "huggingface/a10g-small");
  EXPECT_EQ(running->created_ms, 1773432000000);
  EXPECT_EQ(running->ends_ms, 0);
  EXPECT_FALSE(running->tells_end);  // so the ledger keeps what was granted
  // The address is valid with RUNNING alone, and a job without ssh has none.
  const auto waiting = DescribeAnswered(200, JobRow("SCHEDULING", "", kSsh));
  EXPECT_EQ(waiting->state, State::kStarting);
  EXPECT_FALSE(waiting->address.has_value());
  EXPECT_EQ(DescribeAnswered(200, JobRow("RUNNING"))->state, State::kStarting);
  EXPECT_EQ(DescribeAnswered(200, JobRow("UPDATING", "", kSsh))->state, State::kStarting);
  for (const char* over : {"COMPLETED", "CANCELED", "ERROR", "DELETED"}) {
    const auto gone =
        DescribeAnswered(200, JobRow(over, "", R"(,"cancelReason":"NO_SUBSCRIPTION")" + kSsh));
    EXPECT_THAT(gone, StatusIs(Code::kNotFound));
    EXPECT_THAT(WordsOfGone(gone.status()), AllOf(HasSubstr(over), HasSubstr("NO_SUBSCRIPTION")));
  }
}

TEST_F(HuggingfaceTest, TheTimeOfItsEndIsWhatTheMarketSaysElseWhatItWasAskedFor) {
  const std::string asked = R"("labels":{"gpuctl-ends":"1773440000"},)";
  EXPECT_EQ(DescribeAnswered(200, JobRow("RUNNING", asked))->ends_ms, 1773440000000);
  EXPECT_TRUE(DescribeAnswered(200, JobRow("RUNNING", asked))->tells_end);
  // The market gave less: its half an hour for jobs without a time.
  EXPECT_EQ(DescribeAnswered(200, JobRow("RUNNING", asked + R"("timeout":1800,)"))->ends_ms,
            1773432000000 + 1800'000);
  for (const char* bad : {"\"soon\"", "\"-7\"", "\"99999999999999999999\""}) {
    EXPECT_EQ(DescribeAnswered(
                  200, JobRow("RUNNING", absl::StrCat(R"("labels":{"gpuctl-ends":)", bad, "},")))
                  ->ends_ms,
              0)
        << bad;
  }
}

TEST_F(HuggingfaceTest, AnAddressIsReadOrRefused) {
  const auto at = [&](const std::string& url) {
    return DescribeAnswered(200, JobRow("RUNNING", "", R"(,"sshUrl":")" + url + "\""));
  };
  const auto port = at("ssh://abc@gate.example:2222/");
  ASSERT_OK(port);
  EXPECT_EQ(port->address.value().port, 2222);
  EXPECT_EQ(port->address->host, "gate.example");
  for (const char* bad : {"http://a@b", "ssh://b", "ssh://a@b:0", "ssh://a@b:99999", "ssh://a@b:x",
                          "ssh://-oX@b", "ssh://a@-oProxyCommand=x", "ssh://a@b@c", "ssh://a@",
                          "ssh://@b", "ssh://a@b:1:2", "ssh://a b@c"}) {
    EXPECT_THAT(at(bad), StatusIs(Code::kUnknown, HasSubstr("is no address"))) << bad;
  }
}

TEST_F(HuggingfaceTest, GoneIsWhatTheMarketSaysIsGone) {
  EXPECT_THAT(DescribeAnswered(404, Said("Job not found")), StatusIs(Code::kNotFound));
  EXPECT_THAT(DescribeAnswered(404, "<html>"), StatusIs(Code::kUnknown));
  EXPECT_THAT(DescribeAnswered(200, JobRow("COMPLETED", "", "", "another")),
              StatusIs(Code::kUnknown, HasSubstr("about job another")));
  EXPECT_THAT(DescribeAnswered(200, R"({"id":"66f0c1d2e3a4b5c6d7e8f901"})"),
              StatusIs(Code::kUnknown));
  EXPECT_THAT(provider_->Describe(""), StatusIs(Code::kInvalidArgument));
}

TEST_F(HuggingfaceTest, ARefusedEndIsLookedAt) {
  const std::string cancel = std::string(kJob) + "/cancel";
  OnWhoami();
  http_->On("POST", cancel, 200, JobRow("CANCELED"));
  EXPECT_OK(provider_->Terminate(kId));
  EXPECT_TRUE(http_->requests().back().repeatable);
  for (const int status : {400, 404, 409, 410, 422}) {
    http_->On("POST", cancel, status, Said("Job is not running"))
        .On("GET", kJob, 200, JobRow("COMPLETED"));
    EXPECT_THAT(provider_->Terminate(kId), StatusIs(Code::kNotFound)) << status;
    http_->On("POST", cancel, status, Said("try later")).On("GET", kJob, 200, JobRow("RUNNING"));
    EXPECT_THAT(provider_->Terminate(kId), StatusIs(Code::kUnavailable)) << status;
  }
  http_->On("POST", cancel, 404, Said("Job not found"));
  EXPECT_THAT(provider_->Terminate(kId), StatusIs(Code::kNotFound));
  http_->On("POST", cancel, 401, Said("no"));
  EXPECT_THAT(provider_->Terminate(kId), StatusIs(Code::kUnauthenticated));
  http_->On("POST", cancel, 429, "{}");
  EXPECT_THAT(provider_->Terminate(kId), StatusIs(Code::kUnavailable));
  EXPECT_THAT(provider_->Terminate(""), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(provider_->MoveExpiry(kId, clock_.Now()), StatusIs(Code::kUnimplemented));
}

TEST_F(HuggingfaceTest, ListsWhatBillsOnAllPages) {
  OnWhoami();
  const std::string next = std::string(kList) + "&cursor=abc%3D";
  http_
      ->On(
          "GET", kList, 200,
          "[" +
              JobRow("RUNNING",
                     R"("labels":{"name":"mine","gpuctl-lease":")" + std::string(kLabel) + R"("},)",
                     kSsh) +
              "]",
          {{"link", "<https://huggingface.co" + next + ">; rel=\"next\""}})
      .On("GET", next, 200,
          "[" + JobRow("SCHEDULING", "", "", "b") + "," + JobRow("COMPLETED", "", "", "c") + "]");
  const auto jobs = provider_->ListInstances();
  ASSERT_OK(jobs);
  ASSERT_EQ(jobs->size(), 2u);
  EXPECT_EQ(jobs->at(0).label, kLabel);  // although somebody renamed it
  EXPECT_EQ(jobs->at(1).label, "");
  // Half a list is none.
  http_->On("GET", kList, 200, "[]", {{"link", "<" + next + ">; rel=\"next\""}})
      .On("GET", next, 500, "{}");
  EXPECT_THAT(provider_->ListInstances(), StatusIs(Code::kUnavailable));
  for (const char* body : {"{}", "<html>", "[7]", R"([{"id":"a"}])", "[{]"}) {
    http_->On("GET", kList, 200, body);
    EXPECT_THAT(provider_->ListInstances(), StatusIs(Code::kUnknown)) << body;
  }
}

TEST_F(HuggingfaceTest, TellsTheAccountAndWhatItCan) {
  OnWhoami();
  EXPECT_EQ(provider_->AccountId().value(), "u-1");
  const ProviderTraits traits = provider_->traits();
  EXPECT_EQ(traits.ends_itself, EndsItself::kByExit);
  EXPECT_TRUE(traits.expiry.at_create);
  EXPECT_FALSE(traits.expiry.can_move);
}

}  // namespace
}  // namespace gpuctl
