#include "client/bill/lease_view.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace gpuctl {
namespace {

constexpr int64_t kHour = 3'600'000;

Lease Rented() {
  Lease lease;
  lease.lease_id = "0123456789ab";
  lease.state = LeaseState::kRented;
  lease.provider = "fake";
  lease.instance_id = "i-1";
  lease.intended_ms = lease.rented_ms = 1000 * kHour;
  lease.rates = {{lease.intended_ms, lease.intended_ms, 2.0}};
  return lease;
}

TEST(LeaseView, ASpendIsARangeOnlyWhereItShows) {
  EXPECT_EQ(FormatSpend({1.234, 1.2341}), "$1.23");
  EXPECT_EQ(FormatSpend({1.2, 1.35}), "$1.20-1.35");
  EXPECT_EQ(FormatSpend({0, 0}), "$0.00");
  EXPECT_EQ(FormatSpend({0, 0.004}), "<$0.01") << "it is not nothing";
  EXPECT_EQ(FormatSpend({0.001, 0.006}), "$0.00-0.01");
  EXPECT_EQ(FormatSpend({0.001, 0.004}, 4), "$0.0010-0.0040");
  EXPECT_EQ(FormatSpend({0, 0.00004}, 4), "<$0.0001") << "it is not nothing";
  EXPECT_EQ(FormatUsdPerHour(0), "?");
  EXPECT_EQ(FormatGpus("H100", 8), "8x H100");
  EXPECT_EQ(FormatGpus("", 0), "-");
}

TEST(LeaseView, ARunThatRaisesLimitsIsNamedWithThem) {
  Lease lease = Rented();
  lease.uses = {{"r-1", "first-1", lease.rented_ms}, {"r-2", "second-1", lease.rented_ms + 1}};
  EXPECT_EQ(DescribeRaiseBy(lease, "r-2"), "") << "an older gpuctl noted none";
  lease.uses[0].limits = lease.uses[1].limits = LeaseLimits{3600, 600, 7200, 0, 2};
  EXPECT_EQ(DescribeRaiseBy(lease, "r-2"), "");
  lease.uses[1].limits->idle_s = 1800;
  lease.uses[1].limits->salvage_s = 60;
  lease.uses[1].limits->cost_usd = 3;
  EXPECT_EQ(DescribeRaiseBy(lease, "r-2"),
            "raises the limits of its machine fake/i-1: idle 10m 00s -> 30m 00s, cost $2.00 -> "
            "$3.00");
  EXPECT_EQ(DescribeRaiseBy(lease, "r-1"), "");
  EXPECT_EQ(DescribeLeaseLimits(*lease.uses[1].limits),
            "time 1h 00m, cost $3.00, idle 30m 00s, salvage 1m 00s");
}

TEST(LeaseView, TheEarliestLimitStopsTheJob) {
  Lease lease = Rented();
  const int64_t now_ms = lease.rented_ms + kHour;
  EXPECT_EQ(JobStopsMs(lease, lease.rented_ms, now_ms), 0);
  lease.limits.time_s = 6 * 3600;
  EXPECT_EQ(JobStopsMs(lease, lease.rented_ms + kHour, now_ms), lease.rented_ms + 7 * kHour);
  // $10 at $2/h last five hours; a minute of grace and an hour of salvage are reserved.
  lease.limits.cost_usd = 10;
  lease.limits.salvage_s = 3600;
  EXPECT_EQ(JobStopsMs(lease, lease.rented_ms + kHour, now_ms),
            lease.rented_ms + 4 * kHour - 60'000);
  // After the limit the time is now, not in the past.
  lease.limits.cost_usd = 1;
  EXPECT_EQ(JobStopsMs(lease, lease.rented_ms + kHour, now_ms), now_ms);
}

TEST(LeaseView, AnIdleMachineEndsByItsLimits) {
  Lease lease = Rented();
  const int64_t since_ms = lease.rented_ms, now_ms = since_ms + 60'000;
  const auto end = [&](int64_t at_ms, ResultsTime told) {
    return DescribeIdleEnd(lease, since_ms, at_ms, told);
  };
  EXPECT_EQ(end(now_ms, ResultsTime::kWords), "") << "it has no limit";
  lease.limits.idle_s = 600;
  EXPECT_EQ(end(now_ms, ResultsTime::kWords), "in 9m 00s");
  lease.limits.salvage_s = 3600;
  EXPECT_EQ(end(now_ms, ResultsTime::kWords),
            "in 9m 00s once its results are home, else in 59m 00s");
  EXPECT_EQ(end(now_ms, ResultsTime::kBrief), "in 9m 00s to 59m 00s");
  EXPECT_EQ(end(now_ms, ResultsTime::kNone), "in 9m 00s");
  EXPECT_EQ(end(since_ms + 1'800'000, ResultsTime::kBrief), "within 30m 00s");
  EXPECT_EQ(end(since_ms + kHour, ResultsTime::kBrief), "");
}

TEST(LeaseView, AHostThatTakesItsMachineBackStopsTheJob) {
  Lease lease = Rented();
  lease.claimed_ms = lease.rented_ms;
  lease.limits.time_s = 6 * 3600;
  lease.limits.salvage_s = 2 * 3600;
  const int64_t now_ms = lease.rented_ms + kHour;
  for (const int64_t none : {int64_t{0}, lease.rented_ms + 8 * kHour}) {
    lease.ends_ms = none;
    EXPECT_EQ(DescribeEarlyEnd(lease, now_ms), "");
    EXPECT_EQ(JobStopsMs(lease, lease.rented_ms, now_ms), lease.rented_ms + 6 * kHour);
  }
  // The results have too little time.
  lease.ends_ms = lease.rented_ms + 7 * kHour;
  EXPECT_NE(DescribeEarlyEnd(lease, now_ms), "");
  EXPECT_EQ(JobStopsMs(lease, lease.rented_ms, now_ms), lease.rented_ms + 6 * kHour);
  lease.ends_ms = lease.rented_ms + 3 * kHour;
  EXPECT_NE(DescribeEarlyEnd(lease, now_ms).find("in 2h 00m"), std::string::npos);
  EXPECT_EQ(JobStopsMs(lease, lease.rented_ms, now_ms), lease.ends_ms);
  // It is over, or the lease is.
  EXPECT_EQ(DescribeEarlyEnd(lease, lease.ends_ms), "");
  lease.state = LeaseState::kReleased;
  EXPECT_EQ(DescribeEarlyEnd(lease, now_ms), "");
}

TEST(LeaseView, APriceOfNothingIsNoUnknownPrice) {
  Lease lease = Rented();
  EXPECT_EQ(FormatUsdPerHour(lease), "$2.00");
  lease.rates.push_back({lease.rented_ms, lease.rented_ms, 0});
  EXPECT_EQ(FormatUsdPerHour(lease), "$0.00");
  EXPECT_EQ(LeaseToJson(lease, lease.rented_ms)["usd_per_hour"], 0);
  lease.rates = {{lease.rented_ms, lease.rented_ms, 0}};
  EXPECT_EQ(FormatUsdPerHour(lease), "?");
  EXPECT_TRUE(LeaseToJson(lease, lease.rented_ms)["usd_per_hour"].is_null());
  SeenInstance seen;
  EXPECT_EQ(FormatUsdPerHour(seen.listed.instance), "?");
  EXPECT_TRUE(SeenToJson(seen, 0)["usd_per_hour"].is_null());
  seen.listed.instance.bills_nothing = true;
  EXPECT_EQ(FormatUsdPerHour(seen.listed.instance), "$0.00");
  EXPECT_EQ(SeenToJson(seen, 0)["usd_per_hour"], 0);
}

TEST(LeaseView, ThePanelTellsWhatTheRunCosts) {
  Lease lease = Rented();
  lease.uses.push_back({"r-1", "amber-fox-1", lease.rented_ms});
  lease.limits.time_s = 6 * 3600;
  lease.limits.cost_usd = 20;
  lease.limits.idle_s = 600;
  const int64_t now_ms = lease.rented_ms + kHour;
  EXPECT_EQ(CostLine({{lease, "r-1"}}, lease.rented_ms, now_ms),
            "$2.00/h, $2.00 of $20.00 spent, stops in 5h 00m, then idle for 10m 00s");
  EXPECT_EQ(CostLine({{lease, "r-1"}}, lease.rented_ms, now_ms, "done in 1h 00m, $4.00"),
            "$2.00/h, $2.00 of $20.00 spent, stops in 5h 00m, done in 1h 00m, $4.00, then idle for "
            "10m 00s");
  EXPECT_EQ(CostLine({{lease, "r-1"}}, -1, now_ms),
            "$2.00/h, $2.00 of $20.00 spent, bills on until idle for 10m 00s");
}

TEST(LeaseView, JsonSaysWhatItCostsAndWhose) {
  SeenInstance seen;
  seen.provider = "fake";
  seen.listed.instance.id = "i-1";
  seen.listed.instance.price_usd_per_hour = 2.0;
  seen.listed.holder = Holder::kLeak;
  seen.listed.why = "nobody wants it";
  seen.lease = Rented();
  const auto json = SeenToJson(seen, seen.lease->rented_ms + kHour);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["whose"], "leak");
  EXPECT_EQ(json["usd_per_hour"], 2.0);
  EXPECT_EQ(json["lease"]["spent_low_usd"], 2.0);
  EXPECT_TRUE(json["lease"]["cost_limit_usd"].is_null());
}

}  // namespace
}  // namespace gpuctl
