#include "client/market/holdings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "client/runs/run_store.h"
#include "provisioning/rental/rental.h"
#include "tests/support/billing_market.h"
#include "tests/support/client_world.h"
#include "tests/support/matchers.h"
#include "tests/support/stepping_clock.h"

namespace gpuctl {
namespace {

TEST(HoldingsTest, TheLedgerLearnsWhichRunsHaveEnded) {
  SteppingClock clock;
  ClientWorld world(clock);
  RunStore& runs = *world.context.Store().value();
  const auto ledger = Ledger::Open(world.state_dir(), clock).value();
  BillingMarket market("vast", std::make_shared<BillingAccount>(clock), clock);
  LeaseTerms terms;
  terms.offer = market.AnOffer();
  terms.run_id = "r-live";
  ASSERT_OK(Rent(*ledger, market, terms, {}, clock, {}).status());
  const std::string lease_id = ledger->List(/*open_only=*/true).value().front().lease_id;
  const int64_t now_ms = ledger->NowMs();
  const auto end = [&](EndSource source, gpuctl::v1::JobState state) {
    RunEnd made;
    made.state = state;
    made.source = source;
    made.ended_ms = now_ms + 7;
    return made;
  };
  const auto add = [&](const std::string& id, std::optional<RunEnd> ended) {
    RunRow row;
    row.run_id = id;
    row.job_id = "j-" + id;
    row.name = id;
    row.target.name = "vast/1";
    row.created_ms = 1;
    ASSERT_OK(runs.Insert(row));
    if (ended.has_value()) {
      ASSERT_OK(runs.SetEnd(id, *ended));
    }
    ASSERT_OK(ledger->UsedBy(lease_id, id, id, {}, 1, /*beside=*/true));
  };
  add("r-live", std::nullopt);
  add("r-done", end(EndSource::kJob, gpuctl::v1::JOB_STATE_FINISHED));
  add("r-never", end(EndSource::kGpuctl, gpuctl::v1::JOB_STATE_UNSPECIFIED));
  // It may be found alive.
  add("r-lost", end(EndSource::kGpuctl, gpuctl::v1::JOB_STATE_LOST));
  Holdings holdings(world.context);
  const auto lease = holdings.LeaseOf("r-done");
  ASSERT_OK(lease);
  ASSERT_TRUE(lease->has_value());
  for (const LeaseUse& use : (*lease)->uses) {
    const bool over = use.run_id == "r-done" || use.run_id == "r-never";
    EXPECT_EQ(use.until_ms, over ? now_ms + 7 : 0) << use.run_id;
  }
}

}  // namespace
}  // namespace gpuctl
