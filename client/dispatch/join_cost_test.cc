#include "client/dispatch/join_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "client/runs/run_store.h"
#include "common/files/files.h"
#include "provisioning/rental/rental.h"
#include "tests/support/billing_market.h"
#include "tests/support/matchers.h"
#include "tests/support/stepping_clock.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kJoinHour = 3'600'000;

RunSpec HourOfRun() {
  RunSpec spec;
  spec.time_limit = absl::Hours(1);
  spec.grace = absl::ZeroDuration();
  spec.salvage = absl::Minutes(40);
  return spec;  // with its start: two hours
}

TEST(JoinCost, TheLimitRisesToWhatTheRunMayNeed) {
  Lease lease;
  lease.state = LeaseState::kRented;
  lease.intended_ms = lease.rented_ms = lease.created_ms = 1;
  lease.rates = {{1, 1, 3.0}};
  lease.limits.cost_usd = 6;
  lease.limits.time_s = 7200;
  lease.uses = {{"r-1", "a-1", 1, 1, 0}};
  // Three dollars were spent, and six more may be needed.
  const int64_t now_ms = kJoinHour + 1;
  const JoinCost other = CostOfJoining(HourOfRun(), lease, {}, now_ms);
  EXPECT_FALSE(other.held);
  EXPECT_NEAR(other.more_usd, 3, 1e-6);
  EXPECT_NEAR(other.limits.cost_usd, 9, 1e-6);
  EXPECT_EQ(other.limits.time_s, 7200) << "a limit is never lowered";
  EXPECT_EQ(other.limits.salvage_s, 2400);
  EXPECT_NEAR(other.reserved_usd, 6, 1e-6) << "all that the machine may still cost";
  // A batch that is there already has promised the rest.
  const Attempt own{"r-1", "e-1", "b", 6, true, false};
  const JoinCost same = CostOfJoining(HourOfRun(), lease, {own}, now_ms);
  EXPECT_TRUE(same.held);
  EXPECT_NEAR(same.reserved_usd, 3, 1e-6);
  // A limit that is high enough stays.
  lease.limits.cost_usd = 20;
  EXPECT_EQ(CostOfJoining(HourOfRun(), lease, {own}, now_ms).more_usd, 0);
  EXPECT_NEAR(CostOfJoining(HourOfRun(), lease, {}, now_ms).reserved_usd, 17, 1e-6);
}

TEST(JoinCost, TheMachinesOwnSalvageIsPaidForBesideTheRun) {
  Lease lease;
  lease.state = LeaseState::kRented;
  lease.intended_ms = lease.rented_ms = lease.created_ms = 1;
  lease.rates = {{1, 1, 3.0}};
  lease.limits.cost_usd = 10;
  lease.limits.salvage_s = 7200;
  lease.uses = {{"r-1", "a-1", 1, 1, 0}};
  // Three dollars were spent, six are for two hours of salvage. The run needs four of its own.
  const JoinCost cost = CostOfJoining(HourOfRun(), lease, {}, kJoinHour + 1);
  EXPECT_EQ(cost.limits.salvage_s, 7200);
  EXPECT_NEAR(cost.limits.cost_usd, 3 + 4 + 6, 1e-3);
}

TEST(JoinCost, TheOtherBatchesOnTheMachineMustAffordIt) {
  TempDir dir;
  SteppingClock clock;
  const std::string path = JoinPath(dir.path(), "state.db");
  const auto runs = RunStore::Open(path).value();
  const auto batches = BatchStore::Open(path).value();
  const auto ledger = Ledger::Open(dir.path(), clock).value();
  BillingMarket market("vast", std::make_shared<BillingAccount>(clock), clock);
  LeaseTerms terms;
  terms.offer = market.AnOffer();  // $2.00 an hour
  terms.limits.cost_usd = 4;
  terms.run_id = "r-1";
  terms.run_name = "a-1";
  terms.run_gpus = 1;
  ASSERT_OK(Rent(*ledger, market, terms, {}, clock, {}).status());
  const Lease lease = ledger->List(/*open_only=*/true).value().front();
  Batch batch;
  batch.batch_id = "b-a";
  batch.name = "a";
  batch.max_cost_usd = 5;
  Entry entry;
  entry.entry_id = "e-1";
  entry.number = 1;
  entry.name = "a-1";
  ASSERT_OK(batches->Insert(batch, {entry}));
  ClaimRequest claim;
  claim.entry_id = "e-1";
  claim.run_id = "r-1";
  claim.reserved_usd = 4;
  ASSERT_OK(batches->Claim(claim));
  const int64_t now_ms = ledger->NowMs();
  EXPECT_OK(CheckOthersOn(*batches, *ledger, lease, "b-b", 0.9, now_ms));
  EXPECT_THAT(CheckOthersOn(*batches, *ledger, lease, "b-b", 1.1, now_ms),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("batch a on it has --max-cost $5.00")));
  EXPECT_OK(CheckOthersOn(*batches, *ledger, lease, "b-a", 1.1, now_ms)) << "its own batch";
  // One whose run is over there has nothing to pay.
  ASSERT_OK(ledger->UsedBy(lease.lease_id, "r-2", "b-1", terms.limits, 1, /*beside=*/true));
  ASSERT_OK(ledger->UseEnded("r-1", now_ms));
  EXPECT_OK(
      CheckOthersOn(*batches, *ledger, ledger->Get(lease.lease_id).value(), "b-b", 1.1, now_ms));
}

}  // namespace
}  // namespace gpuctl
