#include "client/bill/cost_report.h"

#include <gtest/gtest.h>

namespace gpuctl {
namespace {

constexpr int64_t kHourMs = 3'600'000;
constexpr int64_t kDay = 20'000 * 24 * kHourMs;  // the beginning of a day

// A released lease at one dollar per hour.
Lease Ended(const std::string& provider, int64_t from_ms, int64_t to_ms) {
  Lease lease;
  lease.provider = provider;
  lease.instance_id = "1";
  lease.gpu_name = "H100";
  lease.gpu_count = 1;
  lease.state = LeaseState::kReleased;
  lease.intended_ms = lease.rented_ms = lease.created_ms = from_ms;
  lease.ended_after_ms = lease.ended_ms = to_ms;
  lease.rates = {{0, 0, 1}};
  return lease;
}

TEST(CostReport, SplitsAMachineBetweenItsRuns) {
  Lease lease = Ended("vast", kDay, kDay + 5 * kHourMs);
  lease.uses = {{"r-1", "first", kDay}, {"r-2", "second", kDay + kHourMs}};
  Lease other = Ended("runpod", kDay, kDay + 2 * kHourMs);
  const CostReport report = SumCosts({lease, other}, CostBy::kRun, 0, kDay + 100 * kHourMs);
  ASSERT_EQ(report.rows.size(), 3u);
  EXPECT_EQ(report.rows[0].key, "second");
  EXPECT_NEAR(report.rows[0].spend.high_usd, 4, 1e-9);
  EXPECT_EQ(report.rows[1].key, "-");
  EXPECT_NEAR(report.rows[1].spend.high_usd, 2, 1e-9);
  EXPECT_EQ(report.rows[2].key, "first");
  EXPECT_NEAR(report.rows[2].spend.low_usd, 1, 1e-9);
  EXPECT_NEAR(report.total.spend.high_usd, 7, 1e-9);
  EXPECT_EQ(report.total.billed_ms, 7 * kHourMs);
  EXPECT_EQ(report.total.machines, 2);
}

TEST(CostReport, RunsThatShareAMachineAndTheirBatches) {
  Lease lease = Ended("vast", kDay, kDay + 5 * kHourMs);
  lease.gpu_count = 4;
  lease.uses = {{"r-1", "first", kDay, 1, kDay + 2 * kHourMs},
                {"r-2", "second", kDay + kHourMs, 3, kDay + 2 * kHourMs},
                {"r-3", "third", kDay + 4 * kHourMs, LeaseUse::kWhole, 0}};
  const int64_t now_ms = kDay + 100 * kHourMs;
  const auto of = [](const CostReport& report, const std::string& key) {
    for (const CostRow& row : report.rows) {
      if (row.key == key) return row;
    }
    return CostRow();
  };
  const CostReport runs = SumCosts({lease}, CostBy::kRun, 0, now_ms);
  ASSERT_EQ(runs.rows.size(), 4u);
  EXPECT_NEAR(of(runs, "first").spend.high_usd, 1.25, 1e-9);
  EXPECT_NEAR(of(runs, "second").spend.high_usd, 0.75, 1e-9);
  EXPECT_NEAR(of(runs, "third").spend.high_usd, 1, 1e-9);
  EXPECT_NEAR(of(runs, kIdleKey).spend.high_usd, 2, 1e-9);
  EXPECT_EQ(of(runs, kIdleKey).billed_ms, 2 * kHourMs);
  EXPECT_EQ(of(runs, "first").billed_ms, kHourMs + kHourMs / 4);
  EXPECT_EQ(of(runs, "first").machines, 1);
  EXPECT_NEAR(runs.total.spend.high_usd, 5, 1e-9);
  // The idle time belongs to the batch of the run before it; the rest is of no batch.
  const CostReport batches =
      SumCosts({lease}, CostBy::kBatch, 0, now_ms, {{"r-1", "sweep"}, {"r-2", "sweep"}});
  ASSERT_EQ(batches.rows.size(), 2u);
  EXPECT_NEAR(of(batches, "sweep").spend.high_usd, 4, 1e-9);
  EXPECT_EQ(of(batches, "sweep").machines, 1);
  EXPECT_NEAR(of(batches, "-").spend.high_usd, 1, 1e-9);
  // Of two named ones, the machine that they share counts once.
  const CostReport named = SumCosts({lease}, CostBy::kRun, 0, now_ms, {}, {"first", "second"});
  ASSERT_EQ(named.rows.size(), 2u);
  EXPECT_NEAR(named.total.spend.high_usd, 2, 1e-9);
  EXPECT_EQ(named.total.machines, 1);
  EXPECT_EQ(SumCosts({lease}, CostBy::kRun, 0, now_ms, {}, {"fourth"}).total.machines, 0);
}

TEST(CostReport, DaysAddUpToTheTotal) {
  Lease lease = Ended("vast", kDay + 20 * kHourMs, kDay + 50 * kHourMs);
  const CostReport report = SumCosts({lease}, CostBy::kDay, 0, kDay + 100 * kHourMs);
  ASSERT_EQ(report.rows.size(), 3u);
  EXPECT_EQ(report.rows[0].key, "2024-10-04");
  EXPECT_NEAR(report.rows[0].spend.high_usd, 4, 1e-9);
  EXPECT_NEAR(report.rows[1].spend.high_usd, 24, 1e-9);
  EXPECT_NEAR(report.rows[2].spend.high_usd, 2, 1e-9);
  EXPECT_NEAR(report.total.spend.high_usd, 30, 1e-9);
}

TEST(CostReport, BeginsWhereItIsToldTo) {
  Lease open = Ended("vast", kDay, 0);
  open.state = LeaseState::kRented;
  const int64_t now_ms = kDay + 10 * kHourMs;
  const CostReport report = SumCosts({open}, CostBy::kProvider, kDay + 7 * kHourMs, now_ms);
  ASSERT_EQ(report.rows.size(), 1u);
  EXPECT_NEAR(report.rows[0].spend.low_usd, 3, 1e-9);
  EXPECT_TRUE(
      SumCosts({Ended("vast", kDay, kDay + kHourMs)}, CostBy::kGpu, kDay + 2 * kHourMs, now_ms)
          .rows.empty());
}

TEST(CostReport, WhatWasNeverCreatedCostsNothing) {
  Lease lease = Ended("vast", kDay, kDay + kHourMs);
  lease.state = LeaseState::kNotCreated;
  EXPECT_EQ(SumCosts({lease}, CostBy::kRun, 0, kDay + kHourMs).total.machines, 0);
}

}  // namespace
}  // namespace gpuctl
