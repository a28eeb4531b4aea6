#include "client/rent/lease_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuctl {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(LeaseLimits, NoneIsUnlimitedByDefault) {
  const LeaseLimits limits = AgreeLimits(RunSpec(), 2.5);
  EXPECT_EQ(limits.time_s, 24 * 3600);
  EXPECT_EQ(limits.idle_s, 600);
  EXPECT_EQ(limits.salvage_s, 24 * 3600);
  EXPECT_EQ(limits.contact_s, 72 * 3600);
  EXPECT_NEAR(limits.cost_usd, 2.5 * 48 + 2.5 / 60 + 2.5 / 3, 1e-9);
}

TEST(LeaseLimits, AShortRunIsNotAnsweredForADay) {
  RunSpec spec;
  spec.time_limit = absl::Minutes(10);
  const LeaseLimits limits = AgreeLimits(spec, 0.3);
  EXPECT_EQ(limits.salvage_s, 2 * 3600);
  EXPECT_NEAR(limits.cost_usd, 0.3 * (20 + 10 + 1 + 120) / 60, 1e-9);
  EXPECT_THAT(
      DescribeLimits(spec, limits, 0.3),
      ElementsAre(
          "running   10m 00s, then 1m 00s to save",
          "results   the machine ends 10m 00s after they are home, else 2h 00m after the job",
          "cost      $0.76 at most: $0.10 to start (up to 20m 00s), $0.06 to run, $0.60 while "
          "results wait for you (10m 00s idle once they are home: $0.05)"));
  EXPECT_NEAR(PartsOfCost(limits, 0.3, spec.grace).salvage_usd, 0.6, 1e-9);
  EXPECT_NEAR(PartsOfCost(limits, 0.3, spec.grace).start_usd, 0.1, 1e-9);
  EXPECT_NEAR(PartsOfCost(limits, 0.3, spec.grace).run_usd, 0.3 * 11 / 60, 1e-9);
  EXPECT_NEAR(PartsOfCost(limits, 0.3, spec.grace).idle_usd, 0.05, 1e-9);
  spec.time_limit = absl::Hours(5);
  EXPECT_EQ(AgreeLimits(spec, 1).salvage_s, 20 * 3600);
  spec.time_limit = absl::Hours(48);
  EXPECT_EQ(AgreeLimits(spec, 1).salvage_s, 24 * 3600);
  spec.salvage = absl::Minutes(3);
  EXPECT_EQ(AgreeLimits(spec, 1).salvage_s, 180);
}

TEST(LeaseLimits, BootingDoesNotShortenTheRunningTime) {
  RunSpec spec;
  spec.time_limit = absl::Minutes(10);
  const LeaseLimits limits = AgreeLimits(spec, 6);
  // The node ends the job when the rest of the cost is only enough for grace and salvage.
  const double reserved_usd = 6 * absl::ToDoubleHours(spec.grace + absl::Seconds(limits.salvage_s));
  EXPECT_NEAR(absl::ToDoubleMinutes(absl::Hours((limits.cost_usd - reserved_usd) / 6)), 30, 1e-6);
}

TEST(LeaseLimits, AnExplicitCostLeavesTwoThirdsToTheJob) {
  RunSpec spec;
  spec.cost_limit_usd = 30;
  const LeaseLimits limits = AgreeLimits(spec, 2);
  EXPECT_DOUBLE_EQ(limits.cost_usd, 30);
  EXPECT_EQ(limits.salvage_s, 5 * 3600);
  EXPECT_THAT(
      DescribeLimits(spec, limits, 2),
      ElementsAre(HasSubstr("ends the job after 9h 59m"), HasSubstr("a third of the cost"),
                  HasSubstr("$30.00 at most: $0.67 to start (up to 20m 00s), $19.33 to run, "
                            "$10.00 while")));
}

TEST(LeaseLimits, ACostThatIsMoreThanTheTimeNeedsIsNotToldAsThatTimes) {
  RunSpec spec;
  spec.cost_limit_usd = 1;
  spec.time_limit = absl::Minutes(5);
  const LeaseLimits limits = AgreeLimits(spec, 0.3);
  EXPECT_THAT(DescribeLimits(spec, limits, 0.3),
              Contains(HasSubstr("$1.00 at most: $0.10 to start (up to 20m 00s), $0.03 to run, "
                                 "$0.33 while results wait for you (10m 00s idle once they are "
                                 "home: $0.05), $0.54 to spare")));
  const CostParts parts = PartsOfCost(limits, 0.3, spec.grace);
  EXPECT_NEAR(parts.start_usd + parts.run_usd + parts.salvage_usd + parts.spare_usd, 1, 1e-9);
  spec.time_limit = absl::Hours(24);  // longer than the cost pays for
  EXPECT_NEAR(PartsOfCost(AgreeLimits(spec, 0.3), 0.3, spec.grace).spare_usd, 0, 1e-9);
}

TEST(LeaseLimits, ADearerMachineStaysUnderTheAgreedCost) {
  RunSpec spec;
  spec.time_limit = absl::Hours(2);
  spec.grace = absl::ZeroDuration();
  spec.salvage = absl::Hours(10);
  const double agreed_usd = AgreeLimits(spec, 1).cost_usd;
  EXPECT_NEAR(agreed_usd, 12 + 1.0 / 3, 1e-9);
  EXPECT_EQ(LimitsWithin(spec, 1, agreed_usd)->salvage_s, 10 * 3600);
  const auto dearer = LimitsWithin(spec, 2, agreed_usd);
  ASSERT_TRUE(dearer.ok()) << dearer.status();
  EXPECT_DOUBLE_EQ(dearer->cost_usd, agreed_usd);
  EXPECT_EQ(dearer->salvage_s, (6 - 2) * 3600 - 600);
  EXPECT_EQ(dearer->time_s, 2 * 3600);
  const absl::Status much = LimitsWithin(spec, 6, agreed_usd).status();
  EXPECT_EQ(much.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(much.message().find("$15.00 would do"), std::string::npos) << much;
}

TEST(LeaseLimits, ACostThatPaysForNextToNothingRentsNothing) {
  RunSpec spec;
  spec.cost_limit_usd = 0.01;
  const absl::Status status = LimitsWithin(spec, 24, 1000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("$4.00 would do"), std::string::npos) << status;
  spec.cost_limit_usd = 4;
  EXPECT_DOUBLE_EQ(LimitsWithin(spec, 24, 1)->cost_usd, 4);
  spec.grace = absl::Minutes(21);
  EXPECT_EQ(LimitsWithin(spec, 24, 1).status().code(), absl::StatusCode::kResourceExhausted)
      << "the job would be stopped when it begins";
}

TEST(LeaseLimits, AMachineThatIsUsedAgainHasAlreadyCost) {
  RunSpec spec;
  spec.cost_limit_usd = 30;
  const LeaseLimits limits = AgreeLimits(spec, 2, 7);
  EXPECT_DOUBLE_EQ(limits.cost_usd, 37);
  EXPECT_EQ(limits.salvage_s, 5 * 3600);
}

TEST(LeaseLimits, TheCostPaysForTheSalvageThatOthersWerePromised) {
  LeaseLimits had;
  had.salvage_s = 7200;
  had.cost_usd = 10;
  LeaseLimits needs;
  needs.salvage_s = 600;
  needs.cost_usd = 5;
  // Two dollars an hour: 110 minutes more cost 3.67.
  LeaseLimits both = WithSalvageOfOthers(needs, had, 2, 4);
  EXPECT_EQ(both.salvage_s, 7200);
  EXPECT_NEAR(both.cost_usd, 5 + 11.0 / 3, 1e-6);
  // Only one dollar of what was agreed then is left, and pays for half an hour.
  both = WithSalvageOfOthers(needs, had, 2, 9);
  EXPECT_EQ(both.salvage_s, 600 + 1800);
  EXPECT_DOUBLE_EQ(both.cost_usd, 6);
  both = WithSalvageOfOthers(needs, had, 2, 11);
  EXPECT_EQ(both, needs);
  // What the run itself needs is more.
  needs.salvage_s = 9000;
  EXPECT_EQ(WithSalvageOfOthers(needs, had, 2, 4), needs);
  needs.salvage_s = 600;
  EXPECT_EQ(WithSalvageOfOthers(needs, had, 0, 4).salvage_s, 7200);
}

Lease EndedLease() {
  Lease lease;
  lease.provider = "vast";
  lease.instance_id = "1";
  lease.state = LeaseState::kReleased;
  lease.rates = {{0, 0, 2}};
  lease.limits.cost_usd = 5;
  lease.intended_ms = lease.rented_ms = lease.created_ms = lease.claimed_ms = 1'000'000;
  lease.releasing_ms = lease.seen_ms = lease.ended_after_ms = lease.ended_ms = 1'000'000 + 3600'000;
  return lease;
}

TEST(LeaseLimits, WhatAMachineCostIsGoneForTheNextOne) {
  const absl::StatusOr<double> left = CostLeftOver(EndedLease(), 2'000'000'000);
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_NEAR(*left, 3, 0.01);
}

TEST(LeaseLimits, WhatPaysForNextToNothingIsNothing) {
  Lease lease = EndedLease();
  lease.limits.cost_usd = 2.2;
  EXPECT_EQ(CostLeftOver(lease, 2'000'000'000).status().code(),
            absl::StatusCode::kResourceExhausted);
  lease.limits.cost_usd = 1;
  EXPECT_EQ(CostLeftOver(lease, 2'000'000'000).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(LeaseLimits, TheNextOneCostsWhatTheLastDidWhileItRan) {
  Lease lease = EndedLease();
  lease.limits.cost_usd = 2.2;
  // Only its disk billed at the end.
  lease.rates.push_back({lease.ended_ms - 1, lease.ended_ms - 1, 0.01});
  EXPECT_EQ(CostLeftOver(lease, 2'000'000'000).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(LeaseLimits, AMachineMayBeTakenBackTooSoon) {
  RunSpec spec;
  spec.time_limit = absl::Hours(3);
  spec.grace = absl::Minutes(1);
  spec.salvage = absl::Hours(2);
  const int64_t now_ms = 1'700'000'000'000;
  const int64_t needed_ms = absl::ToInt64Milliseconds(absl::Hours(5) + absl::Minutes(1));
  EXPECT_TRUE(EndsTooSoon(spec, now_ms + needed_ms - 1, now_ms));
  EXPECT_FALSE(EndsTooSoon(spec, now_ms + needed_ms, now_ms));
  EXPECT_FALSE(EndsTooSoon(spec, 0, now_ms));
  EXPECT_TRUE(EndsTooSoon(spec, now_ms - 1, now_ms));
}

TEST(LeaseLimits, NoNextOneWhileTheLastMayBill) {
  Lease lease = EndedLease();
  lease.state = LeaseState::kReleasing;
  EXPECT_EQ(CostLeftOver(lease, 1'000'000 + 3600'000).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(LeaseLimits, TimeIsWhatTheMachinesBeforeHaveLeft) {
  EXPECT_EQ(TimeLeftOver(absl::Hours(6), absl::Hours(4)).value(), absl::Hours(2));
  EXPECT_EQ(TimeLeftOver(absl::Hours(6), absl::ZeroDuration()).value(), absl::Hours(6));
  for (const absl::Duration used : {absl::Hours(6) - absl::Seconds(59), absl::Hours(9)}) {
    EXPECT_EQ(TimeLeftOver(absl::Hours(6), used).status().code(),
              absl::StatusCode::kResourceExhausted);
  }
}

TEST(LeaseLimits, TimeUsedIsThatOfAllAttempts) {
  using Type = LifecycleEvent::Type;
  Lifecycle lifecycle;
  EXPECT_EQ(TimeUsed(lifecycle, 0, 5'000), absl::ZeroDuration()) << "it never began";
  EXPECT_EQ(TimeUsed(lifecycle, 2'000, 5'000), absl::Seconds(3)) << "nobody saw it begin";
  const auto add = [&lifecycle](Type type, int64_t time_ms) {
    lifecycle.events.emplace_back();
    lifecycle.events.back().type = type;
    lifecycle.events.back().time_ms = time_ms;
  };
  add(Type::kStarted, 10'000);
  add(Type::kExited, 15'000);
  add(Type::kRetry, 15'000);
  add(Type::kStarted, 60'000);
  // Its machine was taken away: the time counts until it was last heard.
  EXPECT_EQ(TimeUsed(lifecycle, 1'000, 67'000), absl::Seconds(12));
  EXPECT_EQ(TimeUsed(lifecycle, 0, 0), absl::Seconds(5)) << "of another clock";
  add(Type::kLost, 80'000);
  EXPECT_EQ(TimeUsed(lifecycle, 0, 99'000), absl::Seconds(25));
}

TEST(LeaseLimits, ALargeCostLeavesSalvageAsItIs) {
  RunSpec spec;
  spec.cost_limit_usd = 3000;
  const LeaseLimits limits = AgreeLimits(spec, 2);
  EXPECT_EQ(limits.salvage_s, 24 * 3600);
  EXPECT_THAT(DescribeLimits(spec, limits, 2), Each(Not(HasSubstr("third"))));
}

}  // namespace
}  // namespace gpuctl
