#include "client/market/forecast.h"

#include <gtest/gtest.h>

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
      ForecastOf(&lease, "r", kForecastBeginMs, now_ms + kForecastHourMs / 2, now_ms);
  EXPECT_NEAR(forecast.usd, 3, 0.01);
  EXPECT_FALSE(forecast.limited_before);
  EXPECT_EQ(DescribeForecast(forecast, now_ms), "in 30m 00s, $3.00");
}

TEST(ForecastTest, ARunThatSharesAMachineCostsItsPart) {
  Lease lease = ForecastLease();
  lease.gpu_count = 4;
  lease.uses = {{"r", "r-1", kForecastBeginMs, 1, 0}, {"s", "s-1", kForecastBeginMs, 3, 0}};
  const int64_t now_ms = kForecastBeginMs + kForecastHourMs;
  EXPECT_NEAR(ForecastOf(&lease, "r", kForecastBeginMs, now_ms + kForecastHourMs, now_ms).usd, 1,
              0.01);
  EXPECT_NEAR(ForecastOf(&lease, "s", kForecastBeginMs, now_ms + kForecastHourMs, now_ms).usd, 3,
              0.01);
}

TEST(ForecastTest, SaysWhenALimitComesFirst) {
  const Lease lease = ForecastLease();
  const int64_t now_ms = kForecastBeginMs + kForecastHourMs;
  const Forecast late =
      ForecastOf(&lease, "r", kForecastBeginMs, now_ms + 5 * kForecastHourMs, now_ms);
  EXPECT_TRUE(late.limited_before);
  EXPECT_EQ(DescribeForecast(late, now_ms), "in 5h 00m, limit first");
  Lease poor = ForecastLease();
  poor.limits.cost_usd = 4;
  poor.limits.salvage_s = 1800;
  // One of the four dollars is for the salvage.
  EXPECT_TRUE(
      ForecastOf(&poor, "r", kForecastBeginMs, now_ms + kForecastHourMs, now_ms).limited_before);
  EXPECT_FALSE(ForecastOf(&poor, "r", kForecastBeginMs, now_ms + kForecastHourMs / 4, now_ms)
                   .limited_before);
}

TEST(ForecastTest, AMachineOfOnesOwnCostsNothing) {
  const Forecast forecast =
      ForecastOf(nullptr, "r", kForecastBeginMs, kForecastBeginMs - 5, kForecastBeginMs);
  EXPECT_EQ(forecast.usd, 0);
  EXPECT_EQ(DescribeForecast(forecast, kForecastBeginMs), "in 0s");
}

}  // namespace
}  // namespace gpuctl
