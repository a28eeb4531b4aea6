// Tests which idle machine of ours a run takes, and which it leaves alone.
#include "client/rent/reuse_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "client/spec/gpu_names.h"
#include "client/spec/run_spec.h"
#include "provisioning/rental/rental.h"
#include "tests/support/billing_market.h"
#include "tests/support/client_world.h"
#include "tests/support/matchers.h"
#include "tests/support/stepping_clock.h"

namespace gpuctl {
namespace {

constexpr int64_t kEightyGib = int64_t{80} << 30;

class ReuseNodeTest : public ::testing::Test {
 protected:
  explicit ReuseNodeTest(int gpus = 1, const std::string& name = "vast")
      : name_(name),
        world_(clock_),
        account_(std::make_shared<BillingAccount>(clock_)),
        market_(name, account_, clock_) {
    ledger_ = Ledger::Open(world_.state_dir(), clock_).value();
    spec_.gpu = {ParseGpuRequirement("H100").value()};
    request_.spec = &spec_;
    request_.run_id = "r-2";
    request_.run_name = "amber-fox-2";
    lease_id_ = RentOne(gpus);
    Script().Gpus("NVIDIA H100 80GB HBM3", kEightyGib, gpus);
    Market& market = markets_.emplace_back();
    market.name = name;
    market.provider = std::make_unique<BillingMarket>(name, account_, clock_);
  }
  NodeScript& Script() { return world_.script(name_ + "/i-001"); }
  // A machine with `gpus` GPUs that an earlier run has claimed, for $2.00 an hour.
  std::string RentOne(int gpus = 1) {
    LeaseTerms terms;
    terms.offer = market_.AnOffer();
    terms.offer.gpu_count = gpus;
    terms.run_id = "r-1";
    terms.run_name = "amber-fox-1";
    auto rental = Rent(*ledger_, market_, terms, {}, clock_, {});
    EXPECT_OK(rental);
    SshAddress address;
    address.host = "10.0.0.1";
    address.user = "root";
    EXPECT_OK(ledger_->SetAddress(rental->lease.lease_id, address));
    EXPECT_OK(ledger_->Claimed(rental->lease.lease_id, "n-1"));
    return rental->lease.lease_id;
  }
  absl::StatusOr<std::optional<RentedNode>> Reuse() {
    ::testing::internal::CaptureStderr();
    auto node = ReuseNode(world_.context, *ledger_, markets_, request_);
    told_ = ::testing::internal::GetCapturedStderr();
    return node;
  }
  // Expects that the machine is not taken, and that neither the node nor the ledger changed.
  void ExpectPassedOver() {
    const auto node = Reuse();
    ASSERT_OK(node);
    EXPECT_FALSE(node->has_value());
    EXPECT_TRUE(Script().limits_set.empty());
    EXPECT_EQ(ledger_->Get(lease_id_).value().uses.size(), 1u);
  }
  // Expects that the machine is taken. A test calls it so that its refusal depends only on what it
  // changes.
  void ExpectTaken() {
    const auto node = Reuse();
    ASSERT_OK(node);
    ASSERT_TRUE(node->has_value());
    EXPECT_EQ((*node)->target.name, name_ + "/i-001");
  }
  gpuctl::v1::Job& HasJob(gpuctl::v1::JobState state) {
    gpuctl::v1::Job& job = *Script().hello.add_jobs();
    job.set_job_id("j-1");
    job.set_state(state);
    return job;
  }

  const std::string name_;
  SteppingClock clock_;
  ClientWorld world_;
  std::shared_ptr<BillingAccount> account_;
  BillingMarket market_;
  std::unique_ptr<Ledger> ledger_;
  RunSpec spec_;
  RentedNodeRequest request_;
  std::vector<Market> markets_;  // those that launch has a key for
  std::string lease_id_;
  std::string told_;
};

TEST_F(ReuseNodeTest, AnIdleMachineThatFitsIsTakenUnderTheRunsOwnLimits) {
  clock_.Advance(absl::Hours(2));
  spec_.idle_limit = absl::Minutes(7);
  const auto node = Reuse();
  ASSERT_OK(node);
  ASSERT_TRUE(node->has_value());
  EXPECT_EQ((*node)->target.name, "vast/i-001");
  EXPECT_TRUE((*node)->use.held());
  const Lease lease = ledger_->Get(lease_id_).value();
  ASSERT_EQ(lease.uses.size(), 2u);
  EXPECT_EQ(lease.uses[1].run_name, "amber-fox-2");
  ASSERT_EQ(Script().limits_set.size(), 1u);
  EXPECT_EQ(Script().limits_set[0].idle_s(), 7 * 60);
  // The two hours before do not count against this run's cost limit.
  EXPECT_NEAR(Script().limits_set[0].spent_before_usd(), 4.0, 0.1);
  EXPECT_GT(Script().limits_set[0].cost_usd(), 4.0);
  EXPECT_THAT(told_, ::testing::HasSubstr("using vast/i-001, rented and idle, $2.00/h"));
  EXPECT_EQ(market_.rents, 1);
}

TEST_F(ReuseNodeTest, WhatAnEarlierRunNamedAsItsResultsWaitsOn) {
  // The earlier run named files; this one has none but checkpoints.
  Script().hello.mutable_limits()->set_results_home(false);
  Script().hello.mutable_limits()->mutable_limits()->set_checkpoints_only(false);
  ExpectTaken();
  EXPECT_FALSE(Script().limits_set.at(0).checkpoints_only());
}

// The node reserves the salvage, so one that is not paid for would end the job at once.
TEST_F(ReuseNodeTest, TheLimitsPayForTheRunAndForWhatAnEarlierOneWasPromised) {
  Script().hello.mutable_limits()->set_results_home(false);
  LeaseLimits promised;
  promised.salvage_s = 7200;
  promised.cost_usd = 9;
  ASSERT_OK(ledger_->UsedBy(lease_id_, "r-0", "earlier", promised));
  spec_.time_limit = absl::Minutes(10);
  spec_.salvage = absl::Minutes(5);
  ExpectTaken();
  const gpuctl::v1::NodeLimits& limits = Script().limits_set.at(0);
  const Lease lease = ledger_->Get(lease_id_).value();
  EXPECT_GT(limits.salvage_s(), 3600);
  const double salvage_usd = lease.usd_per_hour() * static_cast<double>(limits.salvage_s()) / 3600;
  const double run_usd = lease.usd_per_hour() / 6;
  EXPECT_GE(limits.cost_usd() - limits.spent_before_usd(), salvage_usd + run_usd);
}

TEST_F(ReuseNodeTest, WhatIsHomeOfAnEarlierRunWaitsNoLonger) {
  Script().hello.mutable_limits()->set_results_home(true);
  Script().hello.mutable_limits()->mutable_limits()->set_checkpoints_only(false);
  ExpectTaken();
  EXPECT_TRUE(Script().limits_set.at(0).checkpoints_only());
}

class ReuseNodeOfTwoGpusTest : public ReuseNodeTest {
 protected:
  ReuseNodeOfTwoGpusTest() : ReuseNodeTest(2) {}
};

TEST_F(ReuseNodeOfTwoGpusTest, IsNothingForATrainerThatUsesOne) {
  spec_.trainer_json = "{}";
  ExpectPassedOver();
  spec_.gpu.clear();
  ExpectPassedOver();
  spec_.processes = kOneForEachGpu;
  ExpectTaken();
  spec_.processes = 0;
  spec_.trainer_json.clear();
  ExpectTaken();
}

TEST_F(ReuseNodeTest, OneThatIsOnlyLookedForIsLeftAlone) {
  const auto idle = FindIdleNode(world_.context, *ledger_, markets_, request_);
  ASSERT_OK(idle);
  ASSERT_TRUE(idle->has_value());
  EXPECT_EQ((*idle)->lease.lease_id, lease_id_);
  EXPECT_TRUE(Script().limits_set.empty());
  EXPECT_EQ(ledger_->Get(lease_id_).value().uses.size(), 1u);
  ExpectTaken();
}

TEST_F(ReuseNodeTest, OneThatCostsMoreThanWasAgreedIsPassedOver) {
  request_.agreed_usd_per_hour = 1.99;
  ExpectPassedOver();
  request_.agreed_usd_per_hour = 2.0;
  spec_.max_price_usd_per_hour = 1.5;
  ExpectPassedOver();
  spec_.max_price_usd_per_hour = 2.0;
  ExpectTaken();
}

TEST_F(ReuseNodeTest, ADearerPriceSinceItWasRentedCounts) {
  request_.agreed_usd_per_hour = 2.0;
  clock_.Advance(absl::Minutes(1));
  ASSERT_OK(ledger_->Seen(lease_id_, ledger_->NowMs(), 2.5));
  ExpectPassedOver();
}

TEST_F(ReuseNodeTest, OneThatCannotBeEndedFromHereIsPassedOver) {
  markets_.front().provider->set_key_print("another account's");
  ASSERT_OK(ledger_->SetKey(lease_id_, "the account's own"));
  ExpectPassedOver();
  markets_.clear();
  ExpectPassedOver();
}

TEST_F(ReuseNodeTest, TheAgreedCostHoldsOnAMachineThatIsThere) {
  spec_.time_limit = absl::Hours(2);
  request_.agreed_usd = 12;
  const auto node = Reuse();
  ASSERT_OK(node);
  ASSERT_TRUE(node->has_value());
  const double spent_usd = SpentOn((*node)->lease, ledger_->NowMs()).high_usd;
  EXPECT_LE((*node)->lease.limits.cost_usd, 12 + spent_usd + 0.01);
}

TEST_F(ReuseNodeTest, OneThatTheAgreedCostDoesNotPayForIsPassedOver) {
  request_.agreed_usd = 0.1;
  ExpectPassedOver();
}

TEST_F(ReuseNodeTest, OneThatItsHostTakesBackTooSoonIsPassedOver) {
  spec_.time_limit = absl::Hours(3);
  spec_.salvage = absl::Hours(2);
  const int64_t now_ms = ledger_->NowMs();
  ASSERT_OK(ledger_->SetEnds(lease_id_, now_ms + 5 * 3'600'000 - 1));
  ExpectPassedOver();
  EXPECT_EQ(Script().connects, 0);
  ASSERT_OK(ledger_->SetEnds(lease_id_, now_ms + 6 * 3'600'000));
  ExpectTaken();
}

TEST_F(ReuseNodeTest, OneWhoseEndTheMarketMovesIsTakenAndLivesLongEnough) {
  spec_.time_limit = absl::Hours(3);
  spec_.salvage = absl::Hours(2);
  const int64_t now_ms = ledger_->NowMs();
  auto& market = static_cast<BillingMarket&>(*markets_[0].provider);
  market.market_traits.expiry = {/*at_create=*/true, /*can_move=*/true};
  ASSERT_OK(ledger_->SetEnds(lease_id_, now_ms + 60'000));
  ExpectTaken();
  const Instance told = market.Describe("i-001").value();
  EXPECT_GE(told.ends_ms, now_ms + 5 * 3'600'000);
  EXPECT_EQ(ledger_->Get(lease_id_).value().ends_ms, told.ends_ms);
  // The machine's own limits come first.
  const auto& limits = Script().limits_set.at(0);
  EXPECT_GT(static_cast<double>(told.ends_ms - now_ms) / 3'600'000 * 2.0,
            limits.cost_usd() - limits.spent_before_usd());
}

TEST_F(ReuseNodeTest, OneWhoseEndTheMarketDoesNotMoveIsPassedOver) {
  const int64_t soon_ms = ledger_->NowMs() + 60'000;
  auto& market = static_cast<BillingMarket&>(*markets_[0].provider);
  market.market_traits.expiry = {/*at_create=*/true, /*can_move=*/true};
  ASSERT_OK(market.MoveExpiry("i-001", absl::FromUnixMillis(soon_ms)));
  ASSERT_OK(ledger_->SetEnds(lease_id_, soon_ms));
  // It answers well, and nothing moves.
  market.ignored_expiries = 1;
  ExpectPassedOver();
  EXPECT_THAT(told_, ::testing::HasSubstr("left out: vast/i-001: vast/i-001 still ends at "));
  EXPECT_EQ(ledger_->Get(lease_id_).value().ends_ms, soon_ms);
  ExpectTaken();
  EXPECT_GT(ledger_->Get(lease_id_).value().ends_ms, soon_ms);
}

TEST_F(ReuseNodeTest, OneWithAnotherOrTooSmallGpuIsPassedOver) {
  spec_.gpu = {ParseGpuRequirement("A100-40GB").value()};
  ExpectPassedOver();
  spec_.gpu = {ParseGpuRequirement("H100:2").value()};
  ExpectPassedOver();
  EXPECT_EQ(Script().connects, 0);  // the ledger knows that much
  spec_.gpu = {ParseGpuRequirement("96GB").value()};
  ExpectPassedOver();
  spec_.gpu = {ParseGpuRequirement("48GB").value()};
  ExpectTaken();
}

TEST_F(ReuseNodeTest, OneOfAnotherKindOrMarketIsPassedOver) {
  spec_.spot = true;
  ExpectPassedOver();
  spec_.spot = false;
  spec_.providers = {"runpod"};
  ExpectPassedOver();
  spec_.providers = {"runpod", "vast"};
  spec_.image = "python:3.12";
  ExpectPassedOver();
  spec_.image.clear();
  spec_.volume.name = "datasets";
  ExpectPassedOver();
  spec_.volume.name.clear();
  ExpectTaken();
}

TEST_F(ReuseNodeTest, OneWhoseJobIsNotOverIsPassedOver) {
  gpuctl::v1::Job& job = HasJob(gpuctl::v1::JOB_STATE_RUNNING);
  ExpectPassedOver();
  job.set_state(gpuctl::v1::JOB_STATE_FINISHED);
  HasJob(gpuctl::v1::JOB_STATE_LOST);
  ExpectTaken();
}

TEST_F(ReuseNodeTest, OneWithTooLittleDiskIsPassedOver) {
  spec_.disk_bytes = 1 << 20;
  Script().hello.set_disk_free_bytes((1 << 20) - 1);
  ExpectPassedOver();
  Script().hello.set_disk_free_bytes(1 << 20);
  ExpectTaken();
}

TEST_F(ReuseNodeTest, OneThatAnotherLaunchIsAboutToUseIsPassedOver) {
  auto use = LeaseLock::TakeUse(ledger_->state_dir(), lease_id_, clock_);
  ASSERT_OK(use);
  ExpectPassedOver();
  use->Drop();
  // A machine that somebody is about to end is not taken either.
  auto lock = LeaseLock::Take(ledger_->state_dir(), lease_id_, clock_);
  ASSERT_OK(lock);
  ExpectPassedOver();
  EXPECT_EQ(Script().connects, 0);
  lock->Drop();
  ExpectTaken();
}

TEST_F(ReuseNodeTest, OneThatCannotBeReachedIsPassedOverForTheNext) {
  Script().connect = absl::UnavailableError("connection refused");
  ExpectPassedOver();
  RentOne();
  world_.script("vast/i-002").Gpus("NVIDIA H100 80GB HBM3", kEightyGib, 1);
  const auto node = Reuse();
  ASSERT_OK(node);
  ASSERT_TRUE(node->has_value());
  EXPECT_EQ((*node)->target.name, "vast/i-002");
}

// What refuses the limits is no machine for this run, and no reason to rent none.
TEST_F(ReuseNodeTest, OneWhoseNodeRefusesTheLimitsIsPassedOver) {
  const LeaseLimits before = ledger_->Get(lease_id_)->limits;
  spec_.idle_limit = absl::Minutes(7);
  Script().set_limits = absl::FailedPreconditionError("the allocation is over");
  ExpectPassedOver();
  EXPECT_THAT(told_, ::testing::HasSubstr("left out: vast/i-001: set the node's limits"));
  EXPECT_EQ(ledger_->Get(lease_id_)->limits, before);
  EXPECT_FALSE(ledger_->OfRun("r-2")->has_value());
  Script().set_limits = absl::OkStatus();
  ExpectTaken();
}

TEST_F(ReuseNodeTest, OneThatObeysANewerGpuctlIsPassedOver) {
  Script().hello.mutable_limits()->mutable_limits()->set_revision(ledger_->NowMs() + 3'600'000);
  ExpectPassedOver();
  EXPECT_FALSE(FindIdleNode(world_.context, *ledger_, markets_, request_)->has_value());
  clock_.Advance(absl::Hours(2));
  ExpectTaken();
}

class ReuseAllocationTest : public ReuseNodeTest {
 protected:
  ReuseAllocationTest() : ReuseNodeTest(1, "slurm") {}
};

// Its node answers: what was kept of it does.
TEST_F(ReuseAllocationTest, OneThatIsOverByTheSchedulersWordIsNotedAsGone) {
  ExpectTaken();
  account_->End("i-001");
  request_.run_id = "r-3";
  ::testing::internal::CaptureStderr();
  const auto found = FindIdleNode(world_.context, *ledger_, markets_, request_);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("left out: slurm/i-001: it is over"));
  ASSERT_OK(found);
  EXPECT_FALSE(found->has_value());
  EXPECT_EQ(ledger_->Get(lease_id_)->state, LeaseState::kReleased);
}

TEST_F(ReuseAllocationTest, OneThatTheSchedulerDoesNotRunIsPassedOver) {
  auto& market = static_cast<BillingMarket&>(*markets_[0].provider);
  market.describe_answers = {absl::UnavailableError("no answer")};
  ExpectPassedOver();
  account_->SetState("i-001", Instance::State::kStopping, "COMPLETING");
  ExpectPassedOver();
  account_->SetState("i-001", Instance::State::kRunning, "SUSPENDED");
  account_->Suspend("i-001", true);
  ExpectPassedOver();
  account_->Suspend("i-001", false);
  EXPECT_EQ(ledger_->Get(lease_id_)->state, LeaseState::kRented);
  EXPECT_EQ(Script().connects, 0);
  account_->SetState("i-001", Instance::State::kRunning, "RUNNING");
  ExpectTaken();
}

TEST_F(ReuseNodeTest, OneThatIsBeingEndedOrWasNeverClaimedIsPassedOver) {
  ASSERT_OK(ledger_->Releasing(lease_id_));
  ExpectPassedOver();
  LeaseTerms terms;
  terms.offer = market_.AnOffer();
  const auto rental = Rent(*ledger_, market_, terms, {}, clock_, {});
  ASSERT_OK(rental);
  ExpectPassedOver();
  EXPECT_FALSE(world_.known("vast/i-002"));
}

}  // namespace
}  // namespace gpuctl
