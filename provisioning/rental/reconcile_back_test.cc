// Machines that the ledger or a market gave up, and that are there after all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "provisioning/market/label.h"
#include "provisioning/rental/reconcile.h"
#include "provisioning/rental/test_rental_fixture.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ReconcileBackTest : public RentalFixture {
 protected:
  Holder HolderOf(const Reconciliation& result, const std::string& id) {
    for (const SeenInstance& seen : result.instances) {
      if (seen.listed.instance.id == id) return seen.listed.holder;
    }
    ADD_FAILURE() << id << " is not there";
    return Holder::kForeign;
  }
};

TEST_F(ReconcileBackTest, AMachineThatItsMarketCalledGoneAndThatBillsAfterAllIsWantedAgain) {
  const Lease lease = RentAndClaim();
  clock_.Advance(absl::Hours(1));
  market_.list_lag = market_.describe_lag = absl::Hours(100);
  EXPECT_THAT(ReconcileNow().ended_outside, SizeIs(1));
  EXPECT_EQ(ledger_->Get(lease.lease_id)->state, LeaseState::kReleased);
  market_.list_lag = market_.describe_lag = absl::ZeroDuration();
  clock_.Advance(absl::Hours(1));
  const ReapReport report = ReapNow();
  EXPECT_THAT(report.reaped, IsEmpty());
  EXPECT_EQ(HolderOf(report.last, lease.instance_id), Holder::kWanted);
  EXPECT_THAT(report.last.back, SizeIs(1));
  const Lease now = ledger_->Get(lease.lease_id).value();
  EXPECT_EQ(now.state, LeaseState::kRented);
  // It costs for all of the time.
  EXPECT_NEAR(SpentOn(now, ledger_->NowMs()).low_usd, 2 * lease.usd_per_hour(), 0.05);
  EXPECT_THAT(ReapNow().last.back, IsEmpty());
  EXPECT_THAT(account_->Billing(), ElementsAre(lease.label));
}

TEST_F(ReconcileBackTest, AMachineThatComesBackAfterItsRunWentOnElsewhereIsALeak) {
  const Lease lease = RentAndClaim();
  ASSERT_OK(ledger_->UsedBy(lease.lease_id, "r-1", "amber-fox-1", lease.limits));
  clock_.Advance(absl::Hours(1));
  market_.list_lag = market_.describe_lag = absl::Hours(100);
  ReconcileNow();
  market_.list_lag = market_.describe_lag = absl::ZeroDuration();
  const Lease second = RentAndClaim();
  ASSERT_OK(ledger_->UsedBy(second.lease_id, "r-1", "amber-fox-1", second.limits));
  const ReapReport report = ReapNow();
  ASSERT_THAT(report.reaped, SizeIs(1));
  EXPECT_EQ(report.reaped[0].instance.id, lease.instance_id);
  EXPECT_THAT(report.reaped[0].why, HasSubstr("went on"));
  EXPECT_THAT(account_->Billing(), ElementsAre(second.label));
}

// A ledger that was restored from a backup is older than the claim that its machine knows of.
TEST_F(ReconcileBackTest, AMachineWhoseNodeServesTheLeaseIsNoLeak) {
  const std::string served = LeaveALeak(), left = LeaveALeak();
  ReapOptions options;
  options.wait = false;
  options.reconcile.serves = [&](const std::vector<ServesQuestion>& machines) {
    std::vector<bool> answers;
    for (const ServesQuestion& machine : machines) {
      EXPECT_EQ(machine.instance.label,
                FormatLabel({ledger_->OwnerId().value(), machine.lease_id}));
      answers.push_back(machine.instance.label == served);
    }
    return answers;
  };
  auto report = Reap(*ledger_, Markets(), clock_, Hooks(), options);
  ASSERT_OK(report);
  ASSERT_THAT(report->reaped, SizeIs(1));
  EXPECT_EQ(report->reaped[0].instance.label, left);
  ASSERT_THAT(report->last.back, SizeIs(1));
  EXPECT_EQ(report->last.back[0].label, served);
  EXPECT_NE(report->last.back[0].claimed_ms, 0);
  EXPECT_THAT(account_->Billing(), ElementsAre(served));
  // It is asked once.
  options.reconcile.serves = [](const std::vector<ServesQuestion>& machines) {
    return std::vector<bool>(machines.size());
  };
  report = Reap(*ledger_, Markets(), clock_, Hooks(), options);
  ASSERT_OK(report);
  EXPECT_THAT(report->reaped, IsEmpty());
}

TEST_F(ReconcileBackTest, AMachineWhoseRunWentOnAsAnotherIsALeak) {
  const Lease lease = RentAndClaim();
  ReapOptions options;
  options.wait = false;
  options.reconcile.successor = [](const std::string& run_id) {
    return run_id == "r-1" ? "amber-fox-2" : "";
  };
  const auto report = Reap(*ledger_, Markets(), clock_, Hooks(), options);
  ASSERT_OK(report);
  ASSERT_THAT(report->reaped, SizeIs(1));
  EXPECT_OK(report->reaped[0].status);
  EXPECT_THAT(report->reaped[0].why, HasSubstr("went on as amber-fox-2"));
  EXPECT_THAT(account_->Billing(), IsEmpty());
}

TEST_F(ReconcileBackTest, AMachineOutOfOrderForLongIsEndedOnlyWhenItsNodeDoesNotAnswer) {
  const Lease lease = RentAndClaim();
  account_->SetState(lease.instance_id, Instance::State::kSilent, "offline");
  EXPECT_THAT(ReconcileNow().Troubled(), SizeIs(1));
  clock_.Advance(absl::Hours(30));
  ReapOptions options;
  options.wait = false;
  bool answers = true;
  options.reconcile.serves = [&answers](const std::vector<ServesQuestion>& machines) {
    return std::vector<bool>(machines.size(), answers);
  };
  auto report = Reap(*ledger_, Markets(), clock_, Hooks(), options);
  ASSERT_OK(report);
  EXPECT_THAT(report->reaped, IsEmpty()) << "it was out of order at two moments a day apart";
  EXPECT_EQ(ledger_->Get(lease.lease_id)->trouble_ms, 0);
  answers = false;
  ReconcileNow();
  clock_.Advance(absl::Hours(30));
  report = Reap(*ledger_, Markets(), clock_, Hooks(), options);
  ASSERT_OK(report);
  EXPECT_THAT(report->reaped, SizeIs(1));
}

}  // namespace
}  // namespace gpuctl
