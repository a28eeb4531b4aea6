#include "client/due/due_machines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/base/exit_codes.h"
#include "client/due/node_terms.h"
#include "client/runs/run_store.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kHour = 3'600'000;

Lease ALease() {
  Lease lease;
  lease.claimed_ms = 100 * kHour;
  lease.uses = {{"r-1", "amber-fox-1", 100 * kHour}};
  lease.limits.time_s = 6 * 3600;
  lease.limits.idle_s = 600;
  lease.limits.salvage_s = 24 * 3600;
  lease.limits.contact_s = 72 * 3600;
  return lease;
}

NodeVerdict AVerdict(const std::string& due) {
  NodeVerdict verdict;
  verdict.lease_id = "l-1";
  verdict.results_home = true;
  verdict.due = due;
  return verdict;
}

TEST(NodeVerdict, OnlyALimitThatIsOverAndNobodyEnforcesCounts) {
  EXPECT_EQ(WhyDueByVerdict(AVerdict("limit:idle")),
            "its idle limit is over, and it cannot end itself");
  EXPECT_EQ(WhyDueByVerdict(AVerdict("")), "");
  NodeVerdict busy = AVerdict("limit:lease");
  busy.job_runs = true;
  EXPECT_EQ(WhyDueByVerdict(busy), "");
  NodeVerdict able = AVerdict("limit:salvage");
  able.can_release = true;
  EXPECT_EQ(WhyDueByVerdict(able), "") << "it does so itself";
  able.release_requests = 9;
  EXPECT_THAT(WhyDueByVerdict(able), HasSubstr("in vain"));
}

TEST(NodeVerdict, IsReadWithItsTypesChecked) {
  const std::string good =
      R"({"lease_id":"l-1","job_runs":false,"results_home":true,"due":"limit:idle","next":null,)"
      R"("can_release":false,"cannot_release_why":"no key","release_requests":0,"in_s":-3.5})";
  const absl::StatusOr<NodeVerdict> verdict = ParseNodeVerdict(good);
  ASSERT_OK(verdict);
  EXPECT_EQ(verdict->due, "limit:idle");
  EXPECT_TRUE(verdict->results_home);
  EXPECT_FALSE(verdict->usd_per_hour.has_value()) << "an older agent does not tell";
  EXPECT_FALSE(verdict->sent_bytes.has_value());
  EXPECT_EQ(verdict->billing_started_ms, 0);
  const absl::StatusOr<NodeVerdict> priced = ParseNodeVerdict(
      good.substr(0, good.size() - 1) +
      R"(,"rate_usd_per_hour":0.3,"upload_usd_per_gb":0.003,"download_usd_per_gb":0,)"
      R"("billing_started_ms":5,"sent_bytes":7,"received_bytes":9})");
  ASSERT_OK(priced);
  EXPECT_EQ(priced->sent_bytes, 7);
  EXPECT_EQ(priced->received_bytes, 9);
  EXPECT_EQ(priced->billing_started_ms, 5);
  Lease lease = ALease();
  lease.rates = {{0, 0, 0.3}};
  lease.upload_usd_per_gb = 0.003;
  EXPECT_FALSE(KnowsOtherPrices(*priced, lease));
  EXPECT_FALSE(KnowsOtherPrices(*verdict, lease)) << "nothing can be told to an older agent";
  lease.upload_usd_per_gb = 0.009;
  EXPECT_TRUE(KnowsOtherPrices(*priced, lease));
  lease.upload_usd_per_gb = 0.003;
  lease.rates.push_back({1, 2, 0.6});
  EXPECT_TRUE(KnowsOtherPrices(*priced, lease));
  for (const char* bad : {"", "[]", "{}", R"({"due":"limit:idle"})",
                          R"({"lease_id":"l","job_runs":0,"results_home":true,"due":null,)"
                          R"("can_release":false,"release_requests":0})"}) {
    EXPECT_THAT(ParseNodeVerdict(bad), StatusIs(absl::StatusCode::kDataLoss)) << bad;
  }
}

TEST(SurelyDue, AJobOfWhichNothingIsKnownHasAllOfItsTimeAndSalvage) {
  EXPECT_EQ(SurelyDueMs(ALease(), std::nullopt), (100 + 6 + 1 + 24) * kHour);
  // Another run began to use it later.
  Lease reused = ALease();
  reused.uses.push_back({"r-2", "amber-fox-2", 110 * kHour});
  EXPECT_EQ(SurelyDueMs(reused, std::nullopt), (110 + 6 + 1 + 24) * kHour);
}

TEST(SurelyDue, AJobThatIsKnownToBeOverKeepsItsSalvageAndContactItsIdleTime) {
  RunRow run;
  run.accepted_ms = 100 * kHour;
  run.heard_ms = 102 * kHour;
  run.end.emplace();
  run.end->ended_ms = 102 * kHour;
  EXPECT_EQ(SurelyDueMs(ALease(), run), (102 + 24) * kHour);
  run.heard_ms = 140 * kHour;  // somebody fetched its results
  EXPECT_EQ(SurelyDueMs(ALease(), run), 140 * kHour + 600'000);
  Lease brief = ALease();
  brief.limits.contact_s = 3600;
  run.heard_ms = 102 * kHour;
  EXPECT_EQ(SurelyDueMs(brief, run), 103 * kHour);
}

TEST(SurelyDue, AZeroIsNoLimit) {
  Lease lease = ALease();
  lease.limits = {};
  EXPECT_EQ(SurelyDueMs(lease, std::nullopt), kNeverMs);
  RunRow run;
  run.end.emplace();
  run.end->ended_ms = 102 * kHour;
  EXPECT_EQ(SurelyDueMs(lease, run), kNeverMs);
  lease.limits.contact_s = 3600;
  EXPECT_EQ(SurelyDueMs(lease, run), 103 * kHour);
}

TEST(SurelyDue, TimeCountsFromTheAcceptance) {
  RunRow run;
  run.accepted_ms = 103 * kHour;
  run.heard_ms = 104 * kHour;
  EXPECT_EQ(SurelyDueMs(ALease(), run), (103 + 6 + 1 + 24) * kHour);
}

class SuccessorTest : public ::testing::Test {
 protected:
  void Add(const std::string& id, const std::string& resumed_from) {
    RunRow row;
    row.run_id = id;
    row.job_id = "j-" + id;
    row.name = "cat";
    row.created_ms = ++created_ms_;
    row.resumed_from = resumed_from;
    ASSERT_OK(store_->Insert(row));
    ASSERT_OK(store_->SetAccepted(id, "n-1", 1000));
  }
  void End(const std::string& id, gpuctl::v1::JobState state) {
    ASSERT_OK(
        store_->SetEnd(id, {state, kExitOk, 0, EndSource::kGpuctl, EndCause::kNone, "", 2000}));
  }
  int64_t created_ms_ = 0;
  const TempDir dir_;
  const std::unique_ptr<RunStore> store_ = *RunStore::Open(dir_.Sub("state.db"));
};

TEST_F(SuccessorTest, ARunThatWasLostGoesOn) {
  Add("r-1", "");
  End("r-1", gpuctl::v1::JOB_STATE_LOST);
  EXPECT_EQ(SuccessorOf(store_.get(), "r-1"), "");
  Add("r-2", "r-1");
  EXPECT_NE(SuccessorOf(store_.get(), "r-1"), "");
  EXPECT_EQ(SuccessorOf(store_.get(), "r-2"), "");
}

// Its machine keeps what was not fetched yet, for its salvage time.
TEST_F(SuccessorTest, ARunThatEndedAndWasResumedLeavesNothingBehind) {
  Add("r-1", "");
  End("r-1", gpuctl::v1::JOB_STATE_FINISHED);
  Add("r-2", "r-1");
  EXPECT_EQ(SuccessorOf(store_.get(), "r-1"), "");
}

}  // namespace
}  // namespace gpuctl
