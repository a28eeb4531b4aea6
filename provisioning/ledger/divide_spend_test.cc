// How the cost of a machine is divided between the runs that used it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "provisioning/ledger/lease.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kHour = 3'600'000;
constexpr int64_t kBegin = 1'700'000'000'000;
constexpr int64_t kEver = std::numeric_limits<int64_t>::max();

// Eight GPUs at eight dollars an hour.
Lease Machine(std::vector<LeaseUse> uses) {
  Lease lease;
  lease.state = LeaseState::kRented;
  lease.gpu_count = 8;
  lease.intended_ms = lease.rented_ms = lease.created_ms = kBegin;
  lease.rates = {{0, 0, 8}};
  lease.uses = std::move(uses);
  return lease;
}

LeaseUse Use(const std::string& run, double from_h, int gpus, double until_h = 0) {
  const auto at = [](double hours) { return kBegin + static_cast<int64_t>(hours * kHour); };
  return {run, run + "-1", at(from_h), gpus, until_h > 0 ? at(until_h) : 0};
}

double Of(const Lease& lease, const char* run, double now_h) {
  return SpentByRun(lease, run, kBegin + static_cast<int64_t>(now_h * kHour)).high_usd;
}

TEST(DivideSpend, RunsShareByTimeAndGpus) {
  // a alone, then a and b, then b alone.
  const Lease lease = Machine({Use("a", 0, 2, 2), Use("b", 1, 6)});
  EXPECT_NEAR(Of(lease, "a", 3), 8 + 2, 1e-6);
  EXPECT_NEAR(Of(lease, "b", 3), 6 + 8, 1e-6);
  // A run that joined later takes nothing of what was before.
  EXPECT_NEAR(Of(lease, "a", 1), 8, 1e-6);
  EXPECT_NEAR(Of(lease, "b", 1), 0, 1e-6);
}

TEST(DivideSpend, TheNewestRunDoesNotPayForTheOthers) {
  const Lease lease = Machine({Use("a", 0, 4), Use("b", 0.5, 2), Use("c", 0.5, 2)});
  EXPECT_NEAR(Of(lease, "a", 4.5), 4 + 16, 1e-6);
  EXPECT_NEAR(Of(lease, "b", 4.5), 8, 1e-6);
  EXPECT_NEAR(Of(lease, "c", 4.5), 8, 1e-6);
}

TEST(DivideSpend, TheTimeWithoutARunIsIdle) {
  const Lease lease = Machine({Use("a", 0, LeaseUse::kWhole, 1), Use("b", 2, 8, 3)});
  const SpendParts parts = DivideSpend(lease, 0, kEver, kBegin + 4 * kHour);
  EXPECT_NEAR(parts.of_uses[0].own.high_usd, 8, 1e-6);
  EXPECT_NEAR(parts.of_uses[0].idle.high_usd, 8, 1e-6);
  EXPECT_NEAR(parts.of_uses[1].own.high_usd, 8, 1e-6);
  EXPECT_NEAR(parts.of_uses[1].idle.high_usd, 8, 1e-6);
  // Alone on a machine, a run has all of its bill.
  EXPECT_NEAR(Of(Machine({Use("a", 0, 2, 1)}), "a", 4), 32, 1e-6);
}

TEST(DivideSpend, ManyRunsOneAfterAnother) {
  std::vector<LeaseUse> uses;
  for (int i = 0; i < 10'000; ++i) {
    uses.push_back({absl::StrCat("r-", i), "run", kBegin + i * 1000, 8, kBegin + (i + 1) * 1000});
  }
  const Lease lease = Machine(std::move(uses));
  const SpendParts parts = DivideSpend(lease, 0, kEver, kBegin + 10'000'000);
  for (const SpendParts::Part& part : parts.of_uses) {
    ASSERT_NEAR(part.own.high_usd, 8.0 / 3600, 1e-9);
    ASSERT_EQ(part.idle.high_usd, 0);
  }
}

TEST(DivideSpend, WhatAnOlderGpuctlNotedEndsWhereTheNextBegins) {
  const Lease lease = Machine({{"a", "a-1", kBegin}, {"b", "b-1", kBegin + kHour}});
  EXPECT_NEAR(Of(lease, "a", 3), 8, 1e-6);
  EXPECT_NEAR(Of(lease, "b", 3), 16, 1e-6);
}

TEST(DivideSpend, WhoHoldsTheMachine) {
  EXPECT_THAT(HoldingUses(Machine({})), ElementsAre());
  EXPECT_THAT(HoldingUses(Machine({Use("a", 0, 2, 2), Use("b", 1, 6)})), ElementsAre(1));
  EXPECT_THAT(HoldingUses(Machine({Use("a", 0, 2), Use("b", 1, 6)})), ElementsAre(0, 1));
  EXPECT_THAT(HoldingUses(Machine({Use("a", 0, 2, 5), Use("b", 1, 6, 3)})), ElementsAre(0));
  EXPECT_NEAR(ShareNow(Machine({Use("a", 0, 2), Use("b", 1, 6)}), "a"), 0.25, 1e-9);
  EXPECT_NEAR(ShareNow(Machine({Use("a", 0, 2, 3), Use("b", 1, 6)}), "b"), 1, 1e-9);
  EXPECT_NEAR(ShareNow(Machine({Use("a", 0, 2, 3), Use("b", 1, 6)}), "a"), 0, 1e-9);
}

Lease RandomLease(std::mt19937_64& random) {
  const auto below = [&random](int64_t limit) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(limit));
  };
  Lease lease = Machine({});
  lease.state = below(3) == 0 ? LeaseState::kReleased : LeaseState::kRented;
  lease.gpu_count = 1 + static_cast<int>(below(8));
  lease.quantum_s = below(2) == 0 ? 1 : 60;
  lease.intended_ms = kBegin;
  lease.rented_ms = kBegin + below(60'000);
  lease.created_ms = below(2) == 0 ? 0 : kBegin + below(60'000);
  lease.ended_after_ms = kBegin + kHour + below(9 * kHour);
  lease.ended_ms = lease.ended_after_ms + below(120'000);
  lease.rates = {{kBegin, kBegin, 0.1 + 0.01 * static_cast<double>(below(2'000))}};
  if (below(2) == 0) {
    lease.rates.push_back({kBegin + kHour, kBegin + kHour + below(kHour), 3.21});
  }
  int64_t from = kBegin;
  for (int64_t i = below(7); i > 0; --i) {
    LeaseUse use{absl::StrCat("r-", i), absl::StrCat("run-", i), from};
    use.gpus = static_cast<int>(below(6)) - 1;
    // Ends may be missing, before their beginning or after the machine's end.
    if (below(4) != 0) use.until_ms = from - kHour + below(8 * kHour);
    lease.uses.push_back(use);
    from += below(2 * kHour);
  }
  for (int64_t i = below(4); i > 0; --i) {
    const std::string run = absl::StrCat("r-", below(7));
    lease.traffic.push_back({kBegin + below(9 * kHour), run, 1, 1, 0.37});
  }
  lease.traffic_charged_usd = below(2) == 0 ? 0 : 2.5;
  return lease;
}

TEST(DivideSpend, AllPartsTogetherAreTheBill) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    std::mt19937_64 random(seed);
    const Lease lease = RandomLease(random);
    if (lease.uses.empty()) continue;
    const auto sometime = [&random] {
      return kBegin - kHour + static_cast<int64_t>(random() % (12 * kHour));
    };
    const int64_t now_ms = sometime();
    const bool ever = seed % 2 == 0;
    const int64_t from_ms = ever ? 0 : sometime();
    const int64_t to_ms = ever ? kEver : from_ms + static_cast<int64_t>(random() % (9 * kHour));
    const SpendParts parts = DivideSpend(lease, from_ms, to_ms, now_ms);
    double low = 0, high = 0, ms = 0;
    for (const SpendParts::Part& part : parts.of_uses) {
      low += part.own.low_usd + part.idle.low_usd;
      high += part.own.high_usd + part.idle.high_usd;
      ms += part.own_ms + part.idle_ms;
      EXPECT_GE(part.own.low_usd, 0) << seed;
      EXPECT_GE(part.idle.high_usd, 0) << seed;
    }
    const Spend all = SpentBetween(lease, from_ms, to_ms, now_ms);
    ASSERT_NEAR(low, all.low_usd, 1e-6) << seed;
    ASSERT_NEAR(high, all.high_usd, 1e-6) << seed;
    ASSERT_NEAR(ms, static_cast<double>(BilledMsBetween(lease, from_ms, to_ms, now_ms)), 1e-3)
        << seed;
    if (!ever) continue;
    double by_run = 0, idle = 0;
    for (size_t i = 0; i < lease.uses.size(); ++i) {
      by_run += SpentByRun(lease, lease.uses[i].run_id, now_ms).high_usd;
      idle += parts.of_uses[i].idle.high_usd;
    }
    ASSERT_NEAR(by_run + idle, SpentOn(lease, now_ms).high_usd, 1e-6) << seed;
  }
}

}  // namespace
}  // namespace gpuctl
