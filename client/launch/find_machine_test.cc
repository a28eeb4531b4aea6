// Tests of the machine of a launch: an idle one of ours, a rented one, or none; and when it is
// given back.
#include "client/launch/find_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "client/base/exit_codes.h"
#include "client/plan/launch_flags.h"
#include "client/plan/launch_plan.h"
#include "client/spec/gpu_names.h"
#include "provisioning/rental/rental.h"
#include "tests/support/billing_market.h"
#include "tests/support/client_world.h"
#include "tests/support/matchers.h"
#include "tests/support/stepping_clock.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

constexpr char kIdle[] = "vast/i-001";

class FindMachineTest : public ::testing::Test {
 protected:
  FindMachineTest()
      : world_(clock_),
        holdings_(world_.context),
        account_(std::make_shared<BillingAccount>(clock_)) {
    auto market = std::make_unique<BillingMarket>("vast", account_, clock_);
    market_ = market.get();
    plan_.rents = true;
    plan_.spec.gpu = {ParseGpuRequirement("H100").value()};
    plan_.row.run_id = "r-2";
    plan_.row.name = "amber-fox-2";
    plan_.rental.markets.push_back({"vast", std::move(market), "test", nullptr});
    plan_.rental.in_order = market_->ListOffers({}).value();
    for (const char* name : {kIdle, "vast/i-002"}) {
      world_.script(name).Gpus("NVIDIA H100 80GB HBM3", int64_t{80} << 30, 1);
    }
  }
  // A machine of ours that an earlier run has claimed, for $2.00 an hour.
  Lease HaveIdle() {
    const auto ledger = Ledger::Open(world_.state_dir(), clock_).value();
    LeaseTerms terms;
    terms.offer = market_->AnOffer();
    const auto rental = Rent(*ledger, *market_, terms, {}, clock_, {});
    EXPECT_OK(rental);
    SshAddress address;
    address.host = "10.0.0.1";
    address.user = "root";
    EXPECT_OK(ledger->SetAddress(rental->lease.lease_id, address));
    EXPECT_OK(ledger->Claimed(rental->lease.lease_id, "n-1"));
    return ledger->Get(rental->lease.lease_id).value();
  }
  absl::StatusOr<Machine> Find() {
    ::testing::internal::CaptureStderr();
    absl::StatusOr<Machine> machine = FindMachine(world_.context, holdings_, flags_, plan_);
    told_ = ::testing::internal::GetCapturedStderr();
    return machine;
  }
  // Records the run in the list of runs, as it is before its job starts.
  void Record() {
    plan_.row.created_ms = 1;
    EXPECT_OK(Store().Insert(plan_.row));
  }
  bool Nothing() { return NothingStarted(Store(), plan_.row.run_id); }
  RunStore& Store() { return *world_.context.Store().value(); }
  GiveBack MakeGiveBack(bool release) {
    return GiveBack(world_.context, holdings_, Store(), std::vector<std::string>{plan_.row.run_id},
                    "vast/i-001", release);
  }

  SteppingClock clock_;
  ClientWorld world_;
  Holdings holdings_;
  std::shared_ptr<BillingAccount> account_;
  BillingMarket* market_ = nullptr;
  LaunchFlags flags_;
  LaunchPlan plan_;
  std::string told_;
};

TEST_F(FindMachineTest, AnIdleMachineIsUsedBeforeOneIsRented) {
  HaveIdle();
  const auto machine = Find();
  ASSERT_OK(machine) << told_;
  EXPECT_FALSE(machine->fresh);
  EXPECT_TRUE(machine->uses.front().held());
  EXPECT_EQ(machine->target.name, kIdle);
  EXPECT_EQ(market_->rents, 1);
}

TEST_F(FindMachineTest, FreshRentsAnotherOne) {
  HaveIdle();
  flags_.fresh = true;
  const auto machine = Find();
  ASSERT_OK(machine) << told_;
  EXPECT_TRUE(machine->fresh);
  EXPECT_EQ(machine->target.name, "vast/i-002");
  EXPECT_EQ(market_->rents, 2);
}

TEST_F(FindMachineTest, AnIdleMachineThatCostsMoreThanWasShownIsNotUsed) {
  const Lease idle = HaveIdle();
  clock_.Advance(absl::Minutes(1));
  ASSERT_OK(Ledger::Open(world_.state_dir(), clock_)
                .value()
                ->Seen(idle.lease_id, absl::ToUnixMillis(clock_.Now()), 2.5));
  plan_.rental.in_order.resize(1);  // $2.00 is what the user has agreed to
  const auto machine = Find();
  ASSERT_OK(machine) << told_;
  EXPECT_TRUE(machine->fresh);
  EXPECT_EQ(machine->target.name, "vast/i-002");
}

TEST_F(FindMachineTest, WhenTheOnlyMachineIsGoneWhyNothingWasOfferedIsTold) {
  plan_.rental.in_order.clear();
  plan_.rental.idle = HaveIdle();
  plan_.rental.nothing_offered =
      WithExitCode(absl::NotFoundError("nothing offers an H100"), kExitCapacity);
  world_.script(kIdle).hello.add_jobs()->set_state(gpuctl::v1::JOB_STATE_RUNNING);
  const auto machine = Find();
  EXPECT_THAT(machine.status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("nothing offers an H100")));
  EXPECT_EQ(static_cast<int>(ExitCodeOf(machine.status())), 121);
  EXPECT_EQ(market_->rents, 1);
}

TEST_F(FindMachineTest, WhenAllWithinOurOwnLimitAreGoneTheNextPriceIsTold) {
  plan_.rental.next_dearer = plan_.rental.in_order.back();
  plan_.rental.in_order.resize(1);
  plan_.rental.own_limit_usd_per_hour = 2.5;
  EXPECT_EQ(HighestPrice(plan_), 2.5);
  market_->refusal = absl::AbortedError("gone");
  const absl::Status gone = Find().status();
  EXPECT_THAT(gone, StatusIs(absl::StatusCode::kNotFound,
                             HasSubstr("for $5.00 per hour, and the limit is $2.50")));
  EXPECT_EQ(HintOf(gone), "--max-price 5.00 allows that one");
  EXPECT_EQ(static_cast<int>(ExitCodeOf(gone)), 121);
  // A market that refuses the key is no matter of a price.
  market_->refusal = absl::UnauthenticatedError("wrong key");
  EXPECT_EQ(static_cast<int>(ExitCodeOf(Find().status())), 120);
}

TEST_F(FindMachineTest, WhenTheIdleMachineIsTakenOneIsRented) {
  plan_.rental.idle = HaveIdle();
  world_.script(kIdle).hello.add_jobs()->set_state(gpuctl::v1::JOB_STATE_RUNNING);
  const auto machine = Find();
  ASSERT_OK(machine) << told_;
  EXPECT_TRUE(machine->fresh);
  EXPECT_EQ(machine->target.name, "vast/i-002");
}

TEST_F(FindMachineTest, WhatCannotBeRentedHasTheMarketsExitCode) {
  market_->refusal = absl::AbortedError("gone");
  EXPECT_EQ(static_cast<int>(ExitCodeOf(Find().status())), 121);
  market_->refusal = absl::UnauthenticatedError("wrong key");
  EXPECT_EQ(static_cast<int>(ExitCodeOf(Find().status())), 120);
}

TEST_F(FindMachineTest, ARunThatWasNotRecordedOrNeverBeganHasStartedNothing) {
  EXPECT_TRUE(Nothing());
  Record();
  // From here on the node may have been asked.
  EXPECT_FALSE(Nothing());
  RunEnd end;
  end.exit_code = kExitFailed;
  ASSERT_OK(Store().SetEnd("r-2", end));
  EXPECT_TRUE(Nothing());
}

TEST_F(FindMachineTest, ARunThatEndedAfterItsStartHasStartedSomething) {
  Record();
  RunEnd end;
  end.state = gpuctl::v1::JOB_STATE_LOST;
  ASSERT_OK(Store().SetEnd("r-2", end));
  EXPECT_FALSE(Nothing());
}

TEST_F(FindMachineTest, AMachineOnWhichAJobMayRunStaysRented) {
  ASSERT_OK(Find());
  Record();
  GiveBack give_back = MakeGiveBack(/*release=*/true);
  ::testing::internal::CaptureStderr();
  give_back.OnFailure([] { return false; });
  give_back.OnFailure([] { return false; });
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("vast/i-001 stays rented"));
  EXPECT_EQ(told.find("stays rented"), told.rfind("stays rented"));
  EXPECT_EQ(account_->Billing().size(), 1u);
}

TEST_F(FindMachineTest, AMachineThatWasOursBeforeIsNotEnded) {
  ASSERT_OK(Find());
  GiveBack give_back = MakeGiveBack(/*release=*/false);
  ::testing::internal::CaptureStderr();
  give_back.OnFailure([] { return false; });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("vast/i-001 stays rented"));
  EXPECT_EQ(account_->Billing().size(), 1u);
}

TEST_F(FindMachineTest, TheHighestPriceShownIsThatOfTheDearestOffer) {
  EXPECT_EQ(HighestPrice(plan_), 5.0);
  plan_.rental.in_order.resize(1);
  EXPECT_EQ(HighestPrice(plan_), 2.0);
  plan_.rental.in_order.clear();
  plan_.rents = false;
  EXPECT_EQ(HighestPrice(plan_), 0);
}

}  // namespace
}  // namespace gpuctl
