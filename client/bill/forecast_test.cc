#include "client/bill/forecast.h"

#include <gtest/gtest.h>

#include "client/bill/lease_view.h"

namespace gpuctl {
namespace {

constexpr int64_t kForecastHourMs = 3'600'000;
constexpr int64_t kForecastBeginMs = 1'700'000'000'000;

Lease ForecastLease() {
  Lease lease;
  lease.state = LeaseState::kRented;
  lease.instance_id = "1";
  lease.rates = {{0, 0, 2}};
  lease.intended_ms = lease.rented_ms = lease.created_ms = kForecastBeginMs;
  lease.limits.time_s = 4 * 3600;
  lease.uses = {{"r", "r-1", kForecastBeginMs}};
  return lease;
}

TEST(ForecastTest, AddsWhatTheRestCosts) {
  const Lease lease = ForecastLease();
  const int64_t now_ms = kForecastBeginMs + kForecastHourMs;
  const Forecast forecast =
      ForecastOf({{lease, "r"}}, kForecastBeginMs, now_ms + kForecastHourMs / 2, now_ms);
  EXPECT_NEAR(forecast.usd, 3, 0.01);
  EXPECT_FALSE(forecast.limited_before);
  EXPECT_EQ(DescribeForecast(forecast, now_ms), "in 30m 00s, $3.00");
}

TEST(ForecastTest, ARunThatSharesAMachineCostsItsPart) {
  Lease lease = ForecastLease();
  lease.gpu_count = 4;
  lease.uses = {{"r", "r-1", kForecastBeginMs, 1, 0}, {"s", "s-1", kForecastBeginMs, 3, 0}};
  const int64_t now_ms = kForecastBeginMs + kForecastHourMs;
  EXPECT_NEAR(ForecastOf({{lease, "r"}}, kForecastBeginMs, now_ms + kForecastHourMs, now_ms).usd, 1,
              0.01);
  EXPECT_NEAR(ForecastOf({{lease, "s"}}, kForecastBeginMs, now_ms + kForecastHourMs, now_ms).usd, 3,
              0.01);
}

TEST(ForecastTest, IsRoundedAsWhatIsSpent) {
  Lease lease = ForecastLease();
  lease.rates = {{0, 0, 1}};
  lease.limits.time_s = 200 * 3600;
  int64_t now_ms = kForecastBeginMs + 100 * kForecastHourMs + kForecastHourMs * 2 / 5;
  const std::string spent = FormatSpend(SpentByRun(lease, "r", now_ms));
  EXPECT_EQ(spent, "$100.40");
  EXPECT_EQ(DescribeForecast(ForecastOf({{lease, "r"}}, kForecastBeginMs, now_ms, now_ms), now_ms),
            "in 0s, $100.40");
  now_ms = kForecastBeginMs + kForecastHourMs / 1000;
  EXPECT_EQ(FormatSpend(SpentByRun(lease, "r", now_ms)), "<$0.01");
  EXPECT_EQ(DescribeForecast(ForecastOf({{lease, "r"}}, kForecastBeginMs, now_ms, now_ms), now_ms),
            "in 0s, <$0.01");
}

// The panel leaves out whole parts between ", " where a terminal is narrow, and on a machine that
// had other runs it also shows what all of them cost: the number alone would look like that.
TEST(ForecastTest, IsOnePartOfThePanelAndSaysWhoseCostItIs) {
  Lease lease = ForecastLease();
  const int64_t now_ms = kForecastBeginMs + kForecastHourMs;
  const auto part = [&](int64_t left_ms) {
    return ForecastPart(ForecastOf({{lease, "r"}}, kForecastBeginMs, now_ms + left_ms, now_ms),
                        {{lease, "r"}}, now_ms);
  };
  EXPECT_EQ(part(kForecastHourMs / 2), "done in 30m 00s for $3.00");
  EXPECT_EQ(part(5 * kForecastHourMs), "done in 5h 00m (limit first)");
  lease.uses = {{"q", "q-1", kForecastBeginMs, 0, kForecastBeginMs + kForecastHourMs / 2},
                {"r", "r-1", kForecastBeginMs + kForecastHourMs / 2}};
  EXPECT_EQ(part(kForecastHourMs / 2), "done in 30m 00s for $2.00 of this run");
}

TEST(ForecastTest, SaysWhenALimitComesFirst) {
  const Lease lease = ForecastLease();
  const int64_t now_ms = kForecastBeginMs + kForecastHourMs;
  const Forecast late =
      ForecastOf({{lease, "r"}}, kForecastBeginMs, now_ms + 5 * kForecastHourMs, now_ms);
  EXPECT_TRUE(late.limited_before);
  EXPECT_EQ(DescribeForecast(late, now_ms), "in 5h 00m, limit first");
  Lease poor = ForecastLease();
  poor.limits.cost_usd = 4;
  poor.limits.salvage_s = 1800;
  // One of the four dollars is for the salvage.
  EXPECT_TRUE(
      ForecastOf({{poor, "r"}}, kForecastBeginMs, now_ms + kForecastHourMs, now_ms).limited_before);
  EXPECT_FALSE(ForecastOf({{poor, "r"}}, kForecastBeginMs, now_ms + kForecastHourMs / 4, now_ms)
                   .limited_before);
}

TEST(ForecastTest, AMachineOfOnesOwnCostsNothing) {
  const Forecast forecast =
      ForecastOf({}, kForecastBeginMs, kForecastBeginMs - 5, kForecastBeginMs);
  EXPECT_EQ(forecast.usd, 0);
  EXPECT_EQ(DescribeForecast(forecast, kForecastBeginMs), "in 0s");
}

}  // namespace
}  // namespace gpuctl
