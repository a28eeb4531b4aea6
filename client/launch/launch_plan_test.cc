// What a launch will do: where its run goes, what it rents, and the job and the row that it makes.
#include "client/plan/launch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/launch/launch.h"
#include "client/plan/plan_text.h"
#include "client/spec/gpu_names.h"
#include "client/spec/launch_record.h"
#include "common/files/files.h"
#include "common/job/job_layout.h"
#include "provisioning/rental/rental.h"
#include "tests/support/billing_market.h"
#include "tests/support/client_world.h"
#include "tests/support/matchers.h"
#include "tests/support/stepping_clock.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr char kOurs[] = "vast/i-001";
constexpr char kToken[] = "GPUCTL_LAUNCH_PLAN_TEST_TOKEN";

// Offers nothing, as long as it lives.
class SoldOutMarket : public BillingMarket {
 public:
  using BillingMarket::BillingMarket;
  absl::StatusOr<std::vector<Offer>> ListOffers(const Requirements&) override {
    return std::vector<Offer>();
  }
};

// Sets a variable of the environment for as long as it lives.
class VariableSet {
 public:
  VariableSet(const char* name, const std::string& value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~VariableSet() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  VariableSet(const VariableSet&) = delete;
  VariableSet& operator=(const VariableSet&) = delete;

 private:
  const char* const name_;
  std::optional<std::string> before_;
};

class LaunchPlanTest : public ::testing::Test {
 protected:
  LaunchPlanTest()
      : world_(clock_),
        account_(std::make_shared<BillingAccount>(clock_)),
        holdings_(world_.context,
                  [this](const std::vector<std::string>& names) { return Open(names); }) {
    flags_.no_workdir = true;
    spec_.command = {"python", "train.py"};
  }
  // Opens those of `names`, or all with a key, as OpenMarkets does.
  absl::StatusOr<std::vector<Market>> Open(const std::vector<std::string>& names) {
    ++opened_;
    if (!refusal_.ok()) return refusal_;
    std::vector<Market> markets;
    for (const std::string& name : names.empty() ? keys_ : names) {
      if (std::find(keys_.begin(), keys_.end(), name) == keys_.end()) return NoKeyFor(name);
      markets.push_back({name, MakeMarketOf(name), "test", nullptr});
    }
    if (markets.empty()) return NoKeyFor("any provider");
    return markets;
  }
  static absl::Status NoKeyFor(const std::string& name) {
    return WithExitCode(absl::UnauthenticatedError(absl::StrCat("there is no key for ", name)),
                        kExitCredentials);
  }
  // lambda runs no image of the user's, as the real one.
  std::unique_ptr<Provider> MakeMarketOf(const std::string& name) {
    if (sold_out_) return std::make_unique<SoldOutMarket>(name, account_, clock_);
    auto market = std::make_unique<BillingMarket>(name, account_, clock_);
    market->market_traits.takes_image = market->market_traits.takes_login = name != "lambda";
    market->market_traits.region_network = name == "lambda";
    return market;
  }
  absl::StatusOr<LaunchPlan> Plan(const std::vector<NodeTarget>& machines = {},
                                  const std::vector<StartPoint>& resume = {}) {
    return PlanLaunch(world_.context, holdings_, flags_, spec_, machines, resume);
  }
  // A machine of ours that an earlier run has claimed, for $2.00 an hour.
  void HaveIdleH100() {
    const auto ledger = Ledger::Open(world_.state_dir(), clock_).value();
    BillingMarket market("vast", account_, clock_);
    LeaseTerms terms;
    terms.offer = market.AnOffer();
    const auto rental = Rent(*ledger, market, terms, {}, clock_, {});
    ASSERT_OK(rental);
    SshAddress address;
    address.host = "10.0.0.1";
    address.user = "root";
    ASSERT_OK(ledger->SetAddress(rental->lease.lease_id, address));
    ASSERT_OK(ledger->Claimed(rental->lease.lease_id, "n-1"));
    world_.script(kOurs).Gpus("NVIDIA H100 80GB HBM3", int64_t{80} << 30, 1);
  }
  // Plans a run that finds nothing on offer, where an idle machine of ours would do.
  absl::StatusOr<LaunchPlan> PlanWhenSoldOut() {
    keys_ = {"vast"};
    sold_out_ = true;
    spec_.gpu = {ParseGpuRequirement("H100").value()};
    HaveIdleH100();
    return Plan();
  }

  SteppingClock clock_;
  ClientWorld world_;
  TempDir files_;
  std::shared_ptr<BillingAccount> account_;
  std::vector<std::string> keys_;  // the markets with one
  absl::Status refusal_;           // of every market; OK: none
  bool sold_out_ = false;
  int opened_ = 0;
  Holdings holdings_;
  LaunchFlags flags_;
  RunSpec spec_;
};

TEST_F(LaunchPlanTest, AMachineThatIsNamedIsTheUsersOwnAndNoMarketIsAsked) {
  const VariableSet no_ssh("PATH", files_.path());  // its configuration is the machine's
  keys_ = {"vast"};
  flags_.target.host = "ada@box.example:2222";
  const auto plan = Plan();
  ASSERT_OK(plan);
  EXPECT_FALSE(plan->rents);
  EXPECT_EQ(opened_, 0);
  EXPECT_EQ(plan->own_machine.provider, "ssh");
  EXPECT_EQ(plan->own_machine.name, "ada@box.example:2222");
  EXPECT_THAT(plan->rental.markets, IsEmpty());
  EXPECT_EQ(PriceOf(*plan), 0);
}

TEST_F(LaunchPlanTest, SeveralMachinesAreTheUsersOwn) {
  flags_.target.host = "ada@gpu1.invalid,local,ada@gpu2.invalid:2222";
  const LaunchPlan plan = Plan().value();
  EXPECT_FALSE(plan.rents);
  EXPECT_EQ(opened_, 0);
  EXPECT_EQ(plan.spec.nodes, 3);
  EXPECT_EQ(plan.own_machine.host, "gpu1.invalid");
  ASSERT_EQ(plan.other_machines.size(), 2u);
  EXPECT_EQ(plan.other_machines[0].provider, "local");
  EXPECT_EQ(plan.other_machines[1].port, 2222);
  spec_.nodes = 2;
  EXPECT_THAT(std::string(Plan().status().message()),
              testing::HasSubstr("nodes: 2 machines, and --host names 3"));
  spec_.nodes = 0;
  flags_.target.host = "gpu1.invalid,,gpu2.invalid";
  EXPECT_THAT(std::string(Plan().status().message()), testing::HasSubstr("is empty"));
}

TEST_F(LaunchPlanTest, SomePlacesHaveNotSeveralMachines) {
  keys_ = {"lambda", "slurm"};
  spec_.nodes = 2;
  spec_.providers = {"slurm", "lambda"};
  EXPECT_THAT(std::string(Plan().status().message()),
              testing::HasSubstr("is on a cluster or at markets"));
  spec_.providers = {"lambda"};
  spec_.volume.name = "sets";
  EXPECT_THAT(std::string(Plan().status().message()), testing::HasSubstr("has no volume"));
  spec_.volume.name.clear();
  spec_.providers = {"slurm"};
  spec_.max_retries = 1;
  spec_.retry_on = {"preempted"};
  EXPECT_THAT(std::string(Plan().status().message()),
              testing::HasSubstr("a run on 2 machines is not resumed"));
  spec_ = RunSpec();
  spec_.command = {"python", "train.py"};
  spec_.nodes = 2;
  keys_.clear();
  EXPECT_THAT(std::string(Plan().status().message()),
              testing::HasSubstr("nodes: 2 machines, and --host names 0"));
}

TEST_F(LaunchPlanTest, WithoutAKeyTheRunGoesToThisMachine) {
  // A GPU may be here: that machine is asked before anything is sent.
  for (const bool wants_gpu : {false, true}) {
    if (wants_gpu) spec_.gpu = {ParseGpuRequirement("H100").value()};
    const auto plan = Plan();
    ASSERT_OK(plan);
    EXPECT_FALSE(plan->rents);
    EXPECT_EQ(plan->own_machine.provider, "local");
    EXPECT_EQ(PriceOf(*plan), 0);
  }
}

TEST_F(LaunchPlanTest, WithoutAKeyWhatOnlyRentedMachinesHaveIsAnError) {
  const auto expect_no_key = [this](const char* what) {
    const auto plan = Plan();
    EXPECT_THAT(plan.status(),
                StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("there is no key")))
        << what;
    EXPECT_EQ(static_cast<int>(ExitCodeOf(plan.status())), 120) << what;
    spec_ = RunSpec();
    spec_.command = {"python", "train.py"};
  };
  spec_.max_price_usd_per_hour = 3;
  expect_no_key("a price");
  spec_.spot = true;
  expect_no_key("spot");
  spec_.regions = {"EU"};
  expect_no_key("a region");
  spec_.providers = {"vast"};
  expect_no_key("a market");
}

TEST_F(LaunchPlanTest, AKeyThatCannotBeUsedIsToldAndNotTakenForNone) {
  refusal_ = absl::FailedPreconditionError("others can read the key");
  EXPECT_THAT(Plan(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("others can read")));
}

TEST_F(LaunchPlanTest, LocalByNameAsksNoMarketAndTakesNothingThatIsRented) {
  keys_ = {"vast"};
  spec_.providers = {"local"};
  const auto plan = Plan();
  ASSERT_OK(plan);
  EXPECT_EQ(plan->own_machine.provider, "local");
  EXPECT_EQ(opened_, 0);
  spec_.max_price_usd_per_hour = 3;
  EXPECT_THAT(Plan(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_price")));
}

TEST_F(LaunchPlanTest, OffersOfAllMarketsAreInOrderOfPrice) {
  keys_ = {"vast", "runpod"};
  spec_.gpu = {ParseGpuRequirement("H100").value()};
  spec_.max_price_usd_per_hour = 100;
  const auto plan = Plan();
  ASSERT_OK(plan);
  EXPECT_TRUE(plan->rents);
  EXPECT_EQ(PriceLimitOf(*plan), 100);
  EXPECT_FALSE(plan->rental.own_limit_usd_per_hour.has_value());
  EXPECT_EQ(plan->rental.markets.size(), 2u);
  std::vector<std::string> order;
  for (const Offer& offer : plan->rental.in_order) {
    order.push_back(absl::StrCat(offer.provider, " ", offer.ref));
  }
  EXPECT_THAT(order, ElementsAre("runpod small", "vast small", "runpod large", "vast large"));
  EXPECT_EQ(Cheapest(*plan).ref, "small");
  EXPECT_EQ(MarketOf(*plan), "runpod");
  EXPECT_EQ(PriceOf(*plan), 2.0);
  // Nothing is rented before the user has agreed.
  EXPECT_THAT(account_->Billing(), IsEmpty());
}

TEST_F(LaunchPlanTest, SeveralMachinesAreRentedWhereTheyReachEachOther) {
  keys_ = {"vast", "lambda"};
  spec_.nodes = 3;
  spec_.gpu = {ParseGpuRequirement("H100").value()};
  const auto plan = Plan();
  ASSERT_OK(plan);
  ASSERT_EQ(plan->rental.markets.size(), 1u);
  EXPECT_EQ(MarketOf(*plan), "lambda");
  ASSERT_EQ(plan->rental.left_out.size(), 1u);
  EXPECT_EQ(plan->rental.left_out.front().market, "vast");
  EXPECT_EQ(MachinesToRent(*plan), 3);
  EXPECT_EQ(plan->member_ids.size(), 2u);
  EXPECT_DOUBLE_EQ(PriceOf(*plan), 3 * Cheapest(*plan).price_usd_per_hour);
  EXPECT_THAT(PlanText(*plan, 0), Contains(HasSubstr("machines  3 of H100:1 at lambda")));
  EXPECT_THAT(PlanText(*plan, 0), Contains(HasSubstr(" per hour for 3 machines, ")));
  // What the user's cost pays for is divided between them.
  spec_.cost_limit_usd = 0.5;
  spec_.time_limit = absl::Minutes(10);
  EXPECT_THAT(Plan(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--cost")));
  spec_.nodes = 1;
  EXPECT_OK(Plan());
  spec_.nodes = 2;
  spec_.cost_limit_usd.reset();
  keys_ = {"vast"};
  EXPECT_THAT(Plan(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no private network")));
}

TEST_F(LaunchPlanTest, OnlyTheMarketThatIsNamedIsAsked) {
  keys_ = {"vast", "runpod"};
  spec_.providers = {"vast"};
  const auto plan = Plan();
  ASSERT_OK(plan);
  ASSERT_EQ(plan->rental.markets.size(), 1u);
  EXPECT_EQ(MarketOf(*plan), "vast");
}

TEST_F(LaunchPlanTest, DefaultsOfRentedMachinesCountWhereOneIsRented) {
  const auto settings = [] {
    return Settings::Of(
        ParseSettings("[resources]\nmax_price = 0.01\non_price_rise = 'stop'\n", "F", Origin::kUser)
            .value(),
        {}, {});
  };
  const auto plan = PlanLaunch(world_.context, holdings_, flags_, spec_, {}, {}, settings());
  ASSERT_OK(plan);
  EXPECT_FALSE(plan->rents);
  EXPECT_THAT(plan->settings.used(), IsEmpty());
  keys_ = {"vast"};
  EXPECT_EQ(static_cast<int>(ExitCodeOf(
                PlanLaunch(world_.context, holdings_, flags_, spec_, {}, {}, settings()).status())),
            121);
  spec_.flagged = {"resources.max_price"};
  spec_.max_price_usd_per_hour = 100;
  const auto dear = PlanLaunch(world_.context, holdings_, flags_, spec_, {}, {}, settings());
  ASSERT_OK(dear);
  EXPECT_EQ(dear->spec.on_price_rise, "stop");
  EXPECT_THAT(PlanText(*dear, 0), Contains("default   resources.on_price_rise stop, from F:3"));
}

TEST_F(LaunchPlanTest, NothingThatFitsIsAnErrorWithACodeOfItsOwn) {
  keys_ = {"vast"};
  spec_.gpu = {ParseGpuRequirement("A10").value()};
  const auto plan = Plan();
  EXPECT_THAT(plan.status(), StatusIs(absl::StatusCode::kNotFound,
                                      AllOf(HasSubstr("A10:1"), HasSubstr("nearest: H100:1"))));
  EXPECT_EQ(static_cast<int>(ExitCodeOf(plan.status())), 121);
}

TEST_F(LaunchPlanTest, WithoutAMaximumItTakesNothingMuchDearerThanThePriceShown) {
  keys_ = {"vast", "runpod"};
  spec_.gpu = {ParseGpuRequirement("H100").value()};
  const auto plan = Plan();
  ASSERT_OK(plan);
  // $2.00 is shown; those for $5.00 are left out.
  for (const Offer& offer : plan->rental.in_order) EXPECT_EQ(offer.ref, "small");
  EXPECT_EQ(plan->rental.in_order.size(), 2u);
  EXPECT_EQ(PriceLimitOf(*plan), 2.5);
  ASSERT_TRUE(plan->rental.next_dearer.has_value());
  EXPECT_EQ(plan->rental.next_dearer->price_usd_per_hour, 5.0);
  EXPECT_EQ(PlanText(*plan, 0).back(),
            "price     $2.00 per hour, $2.50 at most; --max-price allows more");
  EXPECT_EQ(PlanToJson(*plan)["max_price_usd_per_hour"], 2.5);
  // The record has no limit: a later resume has a price of its own.
  EXPECT_FALSE(ParseLaunchRecord(plan->row.launch_json)->spec.max_price_usd_per_hour.has_value());
}

TEST_F(LaunchPlanTest, AnIdleMachineOfOursComesBeforeWhatIsOffered) {
  keys_ = {"vast"};
  spec_.gpu = {ParseGpuRequirement("H100").value()};
  HaveIdleH100();
  const auto plan = Plan();
  ASSERT_OK(plan);
  ASSERT_TRUE(plan->rental.idle.has_value());
  EXPECT_FALSE(plan->rental.in_order.empty());
  const std::vector<std::string> text = PlanText(*plan, 0);
  EXPECT_THAT(text, Contains(AllOf(HasSubstr("machine   vast/i-001"),
                                   HasSubstr("rented and idle: it bills now"))));
  EXPECT_THAT(text, Contains(HasSubstr("else H100:1 at vast for $2.00 per hour")));
  EXPECT_EQ(PlanToJson(*plan)["idle"], true);
  EXPECT_EQ(PlanToJson(*plan)["node"], kOurs);
  EXPECT_THAT(world_.script(kOurs).limits_set, IsEmpty());
  flags_.fresh = true;
  const auto fresh = Plan();
  ASSERT_OK(fresh);
  EXPECT_FALSE(fresh->rental.idle.has_value());
}

TEST_F(LaunchPlanTest, APlanForLaterNeedsNoOffer) {
  keys_ = {"vast"};
  sold_out_ = true;
  spec_.gpu = {ParseGpuRequirement("H100").value()};
  spec_.max_price_usd_per_hour = 3;
  EXPECT_EQ(static_cast<int>(ExitCodeOf(Plan().status())), 121);
  flags_.later = true;
  const auto plan = Plan();
  ASSERT_OK(plan);
  EXPECT_FALSE(plan->rental.has_machine());
  EXPECT_EQ(PriceOf(*plan), 3);
  EXPECT_THAT(PlanText(*plan, 0), Contains(HasSubstr("none is on offer now")));
  EXPECT_EQ(PlanText(*plan, 0).back(), "price     per hour $3.00 at most");
  EXPECT_TRUE(PlanToJson(*plan)["provider"].is_null());
  refusal_ = NoKeyFor("vast");
  EXPECT_FALSE(Plan().ok()) << "a market that refuses is an error at once";
}

TEST_F(LaunchPlanTest, ThePlanOfABatchHasNoNameAndCountsItsLimit) {
  keys_ = {"vast"};
  spec_.time_limit = absl::Hours(1);
  const auto plan = Plan();
  ASSERT_OK(plan);
  EXPECT_THAT(PlanText(*plan, 0, PlanOf::kEachOfBatch)[0], HasSubstr("command"));
  const auto json = PlanToJson(*plan, PlanOf::kEachOfBatch);
  EXPECT_TRUE(json["name"].is_null());
  const double one = PlanToJson(*plan)["limits"]["cost_usd"].get<double>();
  EXPECT_NEAR(json["limits"]["cost_usd"].get<double>(), one * 1.25, 1e-6);
  EXPECT_NEAR(json["limits"]["salvage_cost_usd"].get<double>(), 2.5 * 4, 1e-6);
}

TEST_F(LaunchPlanTest, WhenNothingIsOfferedAnIdleMachineOfOursDoes) {
  const auto plan = PlanWhenSoldOut();
  ASSERT_OK(plan);
  EXPECT_TRUE(plan->rents);
  ASSERT_TRUE(plan->rental.idle.has_value());
  EXPECT_EQ(plan->rental.idle->instance_id, "i-001");
  EXPECT_THAT(plan->rental.in_order, IsEmpty());
  // What the run fails with when that machine is gone by then.
  EXPECT_THAT(plan->rental.nothing_offered, StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(static_cast<int>(ExitCodeOf(plan->rental.nothing_offered)), 121);
  EXPECT_EQ(MarketOf(*plan), "vast");
  EXPECT_EQ(PriceOf(*plan), 2.0);
  // A plan takes nothing.
  EXPECT_THAT(world_.script(kOurs).limits_set, IsEmpty());
}

TEST_F(LaunchPlanTest, AnIdleMachineThatDoesNotFitChangesNothing) {
  world_.script(kOurs).hello.add_jobs()->set_state(gpuctl::v1::JOB_STATE_RUNNING);
  EXPECT_THAT(PlanWhenSoldOut(), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(LaunchPlanTest, FreshTakesNoIdleMachine) {
  flags_.fresh = true;
  const auto plan = PlanWhenSoldOut();
  EXPECT_THAT(plan.status(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(static_cast<int>(ExitCodeOf(plan.status())), 121);
  EXPECT_EQ(world_.script(kOurs).connects, 0);
}

TEST_F(LaunchPlanTest, OnlyARentedMachineIsTakenAway) {
  spec_.max_retries = 1;
  spec_.retry_on = {"preempted"};
  const auto own = Plan();
  EXPECT_THAT(own.status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("preempted")));
  EXPECT_EQ(ExitCodeOf(own.status()), kExitUsage);
  keys_ = {"vast"};
  EXPECT_OK(Plan());
}

TEST_F(LaunchPlanTest, TheJobHasItsIdsItsCommandAndItsSecrets) {
  const VariableSet token(kToken, "s3cret");
  spec_.secrets = {kToken};
  const auto plan = Plan();
  ASSERT_OK(plan);
  EXPECT_THAT(plan->job.argv(), ElementsAre("python", "train.py"));
  EXPECT_FALSE(plan->job.job_id().empty());
  EXPECT_EQ(plan->job.job_id(), plan->row.job_id);
  EXPECT_EQ(plan->job.run_id(), plan->row.run_id);
  EXPECT_THAT(plan->job.secret_names(), ElementsAre(kToken));
  EXPECT_THAT(plan->secrets, ElementsAre(Pair(kToken, "s3cret")));
  EXPECT_EQ(plan->job.DebugString().find("s3cret"), std::string::npos);
  EXPECT_EQ(plan->row.launch_json.find("s3cret"), std::string::npos);
  // Another plan is another run.
  const auto other = Plan();
  ASSERT_OK(other);
  EXPECT_NE(other->row.run_id, plan->row.run_id);
  EXPECT_NE(other->row.job_id, plan->row.job_id);
}

TEST_F(LaunchPlanTest, DataIsSentWithoutWhatLooksLikeASecret) {
  files_.Write("corpus/a.txt", "text");
  files_.Write("corpus/.env", "TOKEN=1");
  files_.Write("corpus/deep/id_ed25519", "key");
  spec_.data = {{files_.Sub("corpus"), "corpus"}};
  const auto plan = Plan();
  ASSERT_OK(plan);
  ASSERT_EQ(plan->data.size(), 1u);
  std::vector<std::string> sent;
  for (const gpuctl::v1::FileEntry& entry : plan->data[0].manifest) sent.push_back(entry.path());
  EXPECT_THAT(sent, ElementsAre("a.txt", "deep"));
}

TEST_F(LaunchPlanTest, ThePlanTellsWhatTheJobGetsOfTheEnvironment) {
  const VariableSet token(kToken, "s3cret");
  spec_.secrets = {kToken};
  spec_.env = {{"SEED", "7"}, {"WANDB_MODE", "offline"}};
  const auto plan = Plan();
  ASSERT_OK(plan);
  const std::vector<std::string> lines = PlanText(*plan, /*columns=*/0);
  EXPECT_THAT(lines, Contains("env       SEED, WANDB_MODE"));
  EXPECT_THAT(lines, Contains(absl::StrCat("secrets   ", kToken, ": the job gets their values")));
  const nlohmann::ordered_json json = PlanToJson(*plan);
  EXPECT_EQ(json["env"].dump(), R"(["SEED","WANDB_MODE"])");
  EXPECT_EQ(json["secrets"].dump(), absl::StrCat("[\"", kToken, "\"]"));
  EXPECT_EQ(json.dump().find("s3cret"), std::string::npos);
}

TEST_F(LaunchPlanTest, ASecretWithoutAValueIsNamed) {
  spec_.secrets = {kToken};
  const auto plan = Plan();
  EXPECT_THAT(plan.status(), StatusIs(absl::StatusCode::kNotFound, HasSubstr(kToken)));
  EXPECT_EQ(ExitCodeOf(plan.status()), kExitUsage);
}

TEST_F(LaunchPlanTest, TheKeyOfAnAccountIsNoSecretForAJob) {
  for (const char* name : {"RUNPOD_API_KEY", "GPUCTL_VAST_API_KEY", "LAMBDA_API_KEY"}) {
    const VariableSet key(name, "k-1");
    spec_.secrets = {name};
    const auto plan = Plan();
    EXPECT_THAT(plan.status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(name)));
    EXPECT_EQ(ExitCodeOf(plan.status()), kExitUsage);
  }
  const VariableSet other("MY_API_KEY", "k-1");
  spec_.secrets = {"MY_API_KEY"};
  EXPECT_OK(Plan());
}

TEST_F(LaunchPlanTest, AnImageIsPulledWithItsLogin) {
  const VariableSet token(kToken, "s3cret");
  keys_ = {"lambda", "vast"};
  spec_.image = "ghcr.io/ada/tool:1";
  spec_.registry = {"", "ada", kToken};
  const auto plan = Plan();
  ASSERT_OK(plan);
  ASSERT_TRUE(plan->login.has_value());
  EXPECT_EQ(plan->login->server, "ghcr.io");
  EXPECT_EQ(plan->login->username, "ada");
  EXPECT_EQ(plan->login->password, "s3cret");
  // A market that runs no image is not asked, and the plan says so.
  for (const Offer& offer : plan->rental.in_order) EXPECT_EQ(offer.provider, "vast");
  const std::vector<std::string> lines = PlanText(*plan, /*columns=*/0);
  EXPECT_THAT(lines, Contains("image     ghcr.io/ada/tool:1"));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("pulled as ada at ghcr.io"), HasSubstr(kToken))));
  EXPECT_THAT(lines, Contains(HasSubstr("no offers from lambda: lambda runs no container images")));
  const nlohmann::ordered_json json = PlanToJson(*plan);
  EXPECT_EQ(json["image"], "ghcr.io/ada/tool:1");
  EXPECT_EQ(json["registry"].dump(),
            absl::StrCat(R"({"server":"ghcr.io","username":"ada","password":")", kToken, R"("})"));
  // The job does not get it, and no record has it.
  EXPECT_THAT(plan->secrets, IsEmpty());
  for (const std::string& text : {json.dump(), plan->row.launch_json, plan->job.DebugString()}) {
    EXPECT_EQ(text.find("s3cret"), std::string::npos) << text;
  }
  const auto back = ParseLaunchRecord(plan->row.launch_json);
  ASSERT_OK(back);
  EXPECT_EQ(back->spec.registry.password, kToken);
}

TEST_F(LaunchPlanTest, AMarketWithoutImagesIsRefusedForOne) {
  const VariableSet token(kToken, "s3cret");
  keys_ = {"lambda", "vast"};
  spec_.image = "ghcr.io/ada/tool:1";
  spec_.registry = {"", "ada", kToken};
  const auto refused = [this](const char* field) {
    const absl::Status status = Plan().status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr(field), HasSubstr("lambda runs no container"))));
    EXPECT_EQ(ExitCodeOf(status), kExitUsage);
    EXPECT_NE(HintOf(status), "");
  };
  spec_.providers = {"lambda", "vast"};
  refused("resources.registry");
  spec_.providers = {};
  keys_ = {"lambda"};
  refused("resources.registry");
  spec_.registry = {};
  refused("resources.image");
  // The machine is the user's own.
  spec_.image.clear();
  spec_.registry = {"", "ada", kToken};
  const NodeTarget own;
  EXPECT_THAT(Plan({own}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("registry")));
}

TEST_F(LaunchPlanTest, APasswordWithoutAValueIsRefusedBeforeAnybodyIsAsked) {
  keys_ = {"vast"};
  spec_.image = "ghcr.io/ada/tool:1";
  spec_.registry = {"", "ada", kToken};
  absl::Status status = Plan().status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, HasSubstr(kToken)));
  EXPECT_EQ(ExitCodeOf(status), kExitUsage);
  EXPECT_THAT(HintOf(status), HasSubstr("gpuctl login --secret"));
  {
    const VariableSet empty(kToken, "");
    EXPECT_THAT(Plan(), StatusIs(absl::StatusCode::kNotFound, HasSubstr(kToken)));
  }
  // Somebody wrote the password itself.
  spec_.registry.password = "ghp_S3cretS3cret";
  status = Plan().status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(status.ToString().find("S3cret"), std::string::npos) << status;
  EXPECT_EQ(HintOf(status).find("S3cret"), std::string::npos);
  // The key of an account goes to no registry.
  const VariableSet key("VAST_API_KEY", "k-1");
  spec_.registry.password = "VAST_API_KEY";
  EXPECT_THAT(Plan(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("to no registry")));
}

TEST_F(LaunchPlanTest, TheRowTellsHowToLaunchItAgainAndNotYetWhere) {
  spec_.name = "amber-fox";
  spec_.checkpoints = {"out/*.pt"};
  spec_.artifacts = {"out/*.log"};
  flags_.include = {"notes.txt"};
  const auto plan = Plan();
  ASSERT_OK(plan);
  const RunRow& row = plan->row;
  EXPECT_EQ(row.name, "amber-fox");
  EXPECT_EQ(row.command, "python train.py");
  EXPECT_EQ(row.created_ms, world_.context.NowMs());
  EXPECT_THAT(row.checkpoint_patterns, ElementsAre("out/*.pt"));
  EXPECT_THAT(row.artifact_patterns, ElementsAre("out/*.log"));
  EXPECT_EQ(row.output_segment_bytes, OutputShape(plan->job).segment_bytes);
  EXPECT_EQ(row.target.name, "");
  EXPECT_EQ(row.spec_json, "");
  EXPECT_EQ(row.resumed_from, "");
  const auto record = ParseLaunchRecord(row.launch_json);
  ASSERT_OK(record);
  EXPECT_THAT(record->spec.command, ElementsAre("python", "train.py"));
  EXPECT_EQ(record->spec.name, "amber-fox");
  EXPECT_THAT(record->include, ElementsAre("notes.txt"));
  EXPECT_TRUE(record->no_workdir);
}

TEST_F(LaunchPlanTest, TheWorkDirectoryIsScannedAndItsDigestInTheJob) {
  files_.Write("work/train.py", "print(1)\n");
  files_.Write("work/sub/data.txt", "x");
  flags_.no_workdir = false;
  spec_.workdir = files_.Sub("work/sub/..");
  const auto plan = Plan();
  ASSERT_OK(plan);
  ASSERT_TRUE(plan->workdir.has_value());
  EXPECT_EQ(plan->workdir->files, 2);
  EXPECT_EQ(BaseName(plan->workdir->path), "work");
  EXPECT_FALSE(plan->job.manifest_digest().empty());
  EXPECT_EQ(plan->job.manifest_digest(), plan->workdir->digest);
  EXPECT_EQ(plan->row.workdir, plan->workdir->path);
  // A later resume may be asked for elsewhere.
  EXPECT_EQ(ParseLaunchRecord(plan->row.launch_json).value().spec.workdir, plan->workdir->path);
  files_.Write("work/train.py", "print(22)\n");
  const auto changed = Plan();
  ASSERT_OK(changed);
  EXPECT_NE(changed->job.manifest_digest(), plan->job.manifest_digest());
}

TEST_F(LaunchPlanTest, ARunThatGoesOnHasItsCheckpointAndDoesNotRecordItAsData) {
  files_.Write("ckpt/model.bin", "weights");
  files_.Write("corpus/a.txt", "text");
  spec_.data = {{files_.Sub("corpus"), "corpus"}};
  keys_ = {"vast"};
  NodeTarget machine;
  machine.provider = "ssh";
  machine.name = "me@box:22";
  const StartPoint point{files_.Sub("ckpt")};
  const auto plan = Plan({machine}, {point});
  ASSERT_OK(plan);
  EXPECT_EQ(plan->own_machine.name, "me@box:22");
  EXPECT_EQ(opened_, 0);
  std::vector<std::string> paths;
  for (const gpuctl::v1::DataTree& tree : plan->job.data()) {
    paths.push_back(tree.path());
    EXPECT_FALSE(tree.manifest_digest().empty());
  }
  EXPECT_THAT(paths, UnorderedElementsAre("corpus", ".gpuctl-resume"));
  EXPECT_EQ(plan->job.env().at("GPUCTL_RESUME_FROM"), ".gpuctl-resume");
  const auto record = ParseLaunchRecord(plan->row.launch_json);
  ASSERT_OK(record);
  ASSERT_EQ(record->spec.data.size(), 1u);
  EXPECT_EQ(record->spec.data.begin()->second, "corpus");

  const StartPoint file{files_.Sub("ckpt/model.bin"), /*is_file=*/true};
  const auto from_file = Plan({machine}, {file});
  ASSERT_OK(from_file);
  EXPECT_EQ(from_file->job.env().at("GPUCTL_RESUME_FROM"), ".gpuctl-resume/model.bin");
}

TEST_F(LaunchPlanTest, OnePlanIsLaunchedOnOneMachineAfterTheOther) {
  keys_ = {"vast"};
  const auto plan = Plan();
  ASSERT_OK(plan);
  NodeTarget first, second;
  first.name = "vast/i-001";
  second.name = "vast/i-002";
  const Launch one = BeginLaunch(*plan, first);
  const Launch two = BeginLaunch(*plan, second);
  EXPECT_EQ(one.row.target.name, "vast/i-001");
  EXPECT_EQ(two.row.target.name, "vast/i-002");
  EXPECT_EQ(one.row.run_id, two.row.run_id);
  EXPECT_EQ(one.start.spec().job_id(), plan->row.job_id);
  EXPECT_EQ(one.start.spec_digest(), two.start.spec_digest());
}

}  // namespace
}  // namespace gpuctl
