#include "client/rent/market_expiry.h"

#include <gtest/gtest.h>

#include "client/rent/lease_limits.h"

namespace gpuctl {
namespace {

constexpr absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

TEST(MarketExpiryTest, ComesAfterTheCostLimitAndAfterTheRun) {
  LeaseLimits limits;
  limits.cost_usd = 6;
  EXPECT_GT(ExpiryFor(limits, 2.0, kNow, absl::Hours(1), kNow), kNow + absl::Hours(3));
  EXPECT_LT(ExpiryFor(limits, 2.0, kNow, absl::Hours(1), kNow), kNow + absl::Hours(4));
  EXPECT_GT(ExpiryFor(limits, 2.0, kNow, absl::Hours(5), kNow), kNow + absl::Hours(5));
  // A machine that is used again has spent a part of its money.
  EXPECT_LT(ExpiryFor(limits, 2.0, kNow - absl::Hours(2), absl::Hours(1), kNow),
            kNow + absl::Hours(2));
}

TEST(MarketExpiryTest, TheEndIsTold) {
  Lease lease;
  lease.provider = "shadeform";
  EXPECT_EQ(DescribeMarketEnd(lease, 1000), "");
  lease.ends_ms = 3'601'000;
  EXPECT_EQ(DescribeMarketEnd(lease, 1000), "shadeform ends it in 1h 00m at the latest");
  EXPECT_EQ(DescribeMarketEnd(lease, 3'601'000), "");
}

TEST(MarketExpiryTest, WithoutAPriceTheRunsTimeCounts) {
  EXPECT_GT(ExpiryFor(LeaseLimits(), 0, kNow, absl::Hours(1), kNow), kNow + absl::Hours(1));
}

}  // namespace
}  // namespace gpuctl
