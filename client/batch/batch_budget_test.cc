#include "client/batch/batch_budget.h"

#include <gtest/gtest.h>

namespace gpuctl {
namespace {

constexpr int64_t kHour = 3'600'000;

// A machine at one dollar an hour since time 0.
Lease Machine(const std::string& id, std::vector<LeaseUse> uses, double limit_usd) {
  Lease lease;
  lease.lease_id = id;
  lease.state = LeaseState::kRented;
  lease.intended_ms = lease.rented_ms = lease.created_ms = 1;
  lease.price_usd_per_hour = 1;
  lease.rates = {{1, 1, 1.0}};
  lease.limits.cost_usd = limit_usd;
  lease.uses = std::move(uses);
  return lease;
}

Attempt OpenAttempt(const std::string& run, double reserved, bool starting) {
  return {run, "e-" + run, "b", reserved, true, starting};
}

TEST(BatchBudget, WhatIsReservedCountsUntilThereIsAMachine) {
  EXPECT_DOUBLE_EQ(MoneyOf({OpenAttempt("r1", 5, true)}, {}, kHour).committed(), 5);
  const Lease lease = Machine("l", {{"r1", "s-1", 1}}, 4);
  EXPECT_NEAR(MoneyOf({OpenAttempt("r1", 5, false)}, {lease}, kHour).committed(), 4, 1e-6);
  // While it is being started the machine may be replaced by another one.
  EXPECT_NEAR(MoneyOf({OpenAttempt("r1", 5, true)}, {lease}, kHour).committed(), 5, 1e-6);
}

TEST(BatchBudget, AnEndedMachineCountsWithItsCost) {
  Lease lease = Machine("l", {{"r1", "s-1", 1}}, 4);
  lease.state = LeaseState::kReleased;
  lease.ended_after_ms = lease.ended_ms = kHour;
  const Attempt over{"r1", "e", "b", 5, false, false};
  const BatchMoney money = MoneyOf({over}, {lease}, 10 * kHour);
  EXPECT_NEAR(money.spent, 1, 0.001);
  EXPECT_DOUBLE_EQ(money.may_spend, 0);
}

TEST(BatchBudget, AnIdleMachineMayCostItsLimitUnlessItIsUsedAgain) {
  const Lease lease = Machine("l", {{"r1", "s-1", 1}}, 4);
  const Attempt over{"r1", "e", "b", 5, false, false};
  EXPECT_NEAR(MoneyOf({over}, {lease}, kHour).committed(), 4, 0.001);
  EXPECT_NEAR(MoneyOf({over}, {lease}, kHour, "l").committed(), 1, 0.001);
}

TEST(BatchBudget, WhatOthersUseIsNotOurs) {
  const Lease lease = Machine("l", {{"r1", "s-1", 1}, {"other", "o-1", kHour}}, 40);
  const Attempt over{"r1", "e", "b", 5, false, false};
  EXPECT_NEAR(MoneyOf({over}, {lease}, 3 * kHour).committed(), 1, 0.001);
}

TEST(BatchBudget, RunsThatShareAMachineCountItsLimitOnce) {
  const Lease lease = Machine("l", {{"r1", "s-1", 1}, {"r2", "s-2", 1000}, {"r3", "s-3", 2000}}, 4);
  EXPECT_NEAR(MoneyOf({OpenAttempt("r1", 4, false), OpenAttempt("r2", 0, false),
                       OpenAttempt("r3", 0.5, false)},
                      {lease}, kHour)
                  .committed(),
              4, 0.001);
  // One that is about to join raises the machine's limit by what is reserved for it.
  const Lease one = Machine("l", {{"r1", "s-1", 1}}, 4);
  EXPECT_NEAR(MoneyOf({OpenAttempt("r1", 4, false), OpenAttempt("r2", 0.5, true)}, {one}, kHour)
                  .committed(),
              4.5, 0.001);
}

TEST(BatchBudget, EachBatchOnAMachineCountsWhatItMayStillCost) {
  Lease lease = Machine("l", {{"a1", "a-1", 1, 1, 0}, {"b1", "b-1", 1, 1, 0}}, 4);
  lease.gpu_count = 2;
  const int64_t now_ms = kHour + 1;
  // One dollar was spent, a half by each; either of them may be the one that stays.
  const BatchMoney a = MoneyOf({OpenAttempt("a1", 4, false)}, {lease}, now_ms);
  const BatchMoney b = MoneyOf({OpenAttempt("b1", 2, false)}, {lease}, now_ms);
  EXPECT_NEAR(a.spent, 0.5, 0.001);
  EXPECT_NEAR(b.spent, 0.5, 0.001);
  EXPECT_NEAR(a.may_spend, 3, 0.001);
  EXPECT_NEAR(b.may_spend, 3, 0.001);
  // The one that is over has nothing more to pay, and the idle time is that of the last one.
  lease.uses[1].until_ms = now_ms;
  const Attempt over{"b1", "e", "b", 2, false, false};
  EXPECT_NEAR(MoneyOf({over}, {lease}, 2 * kHour).committed(), 0.5, 0.001);
  EXPECT_NEAR(MoneyOf({OpenAttempt("a1", 4, false)}, {lease}, 2 * kHour).spent, 1.5, 0.001);
  lease.uses[0].until_ms = 2 * kHour;
  const Attempt last{"a1", "e", "a", 4, false, false};
  EXPECT_NEAR(MoneyOf({last}, {lease}, 3 * kHour).spent, 2.5, 0.001);
  EXPECT_NEAR(MoneyOf({last}, {lease}, 3 * kHour).committed(), 3.5, 0.001);
  EXPECT_NEAR(MoneyOf({over}, {lease}, 3 * kHour).committed(), 0.5, 0.001);
}

TEST(BatchBudget, APreemptedRunCountsUntilItHasGoneOn) {
  Lease lease = Machine("l", {{"r1", "s-1", 1}}, 4);
  lease.state = LeaseState::kReleased;
  lease.ended_after_ms = lease.ended_ms = kHour;
  EXPECT_NEAR(MoneyOf({OpenAttempt("r1", 5, false)}, {lease}, kHour).committed(), 5, 0.001);
}

TEST(BatchBudget, ToTheCent) {
  EXPECT_TRUE(CheckBudget(10, 8.4, 1.6).ok());
  EXPECT_FALSE(CheckBudget(10, 8.4, 1.601).ok());
}

}  // namespace
}  // namespace gpuctl
