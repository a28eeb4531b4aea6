// The client dies, or its disk fails, at every ledger write and every call to the market of a
// launch and a release. A reap then leaves nothing of ours and touches nothing of others.
#include "provisioning/rental/test_rental_fixture.h"

namespace gpuctl {
namespace {

// The cost of two milliseconds at 2 USD/h, because the ledger's times are whole milliseconds at
// both ends of a bill.
constexpr double kMillisecondUsd = 2 * 2.0 / 3.6e6;

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Killed {};

constexpr char kForeign[] = "my-pod";
constexpr char kOther[] = "gpuctl-00000000-0123456789ab";

// A launch, with or without a lost answer, up to the claim, and the release.
struct Scenario {
  const char* name;
  BillingMarket::Create create;
  absl::Duration list_lag;
  int ignored_terminates;
};

void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

class FaultMatrix : public RentalFixture, public ::testing::WithParamInterface<Scenario> {
 protected:
  // Makes a new world for each point of death.
  void Begin(int round) {
    account_ = std::make_shared<BillingAccount>(clock_);
    account_->Add(kForeign);
    account_->Add(kOther);
    world_ = std::make_unique<BillingMarket>("fake", account_, clock_);
    world_->creates = {GetParam().create};
    world_->list_lag = GetParam().list_lag;
    world_->ignored_terminates = GetParam().ignored_terminates;
    state_ = absl::StrCat("state-", round);
    ledger_ = OpenLedger(state_);
    ASSERT_OK(ledger_->OwnerId());
  }

  void LaunchAndRelease() {
    LeaseTerms terms = Terms();
    absl::StatusOr<Rental> rental = Rent(*ledger_, *world_, terms, {}, clock_, {});
    if (!rental.ok()) return;
    const auto ready =
        WaitReady(*world_, rental->instance.id, absl::Minutes(10), clock_, RentalHooks());
    if (!ready.ok() ||
        !ledger_->SetAddress(rental->lease.lease_id, *ready->instance.address).ok() ||
        !ledger_->Claimed(rental->lease.lease_id, "n-1").ok()) {
      ReleaseOptions options;
      options.lock = &rental->lock;
      Release(*ledger_, *world_, rental->lease.lease_id, clock_, {}, options).IgnoreError();
      return;
    }
    claimed_ = true;
    rental->lock.Drop();
    Release(*ledger_, *world_, rental->lease.lease_id, clock_, {}).IgnoreError();
  }

  // Reaps as cron does, with a new client, and checks.
  void ReapAndCheck(bool leave_wanted) {
    ledger_ = OpenLedger(state_);
    BillingMarket market("fake", account_, clock_);
    market.list_lag = GetParam().list_lag;
    for (int i = 0; i < 2; ++i) {
      const auto report = Reap(*ledger_, {{"fake", &market, absl::OkStatus()}}, clock_, {});
      ASSERT_OK(report);
      EXPECT_THAT(report->last.unsettled, IsEmpty());
      for (const ReapedInstance& reaped : report->reaped) EXPECT_OK(reaped.status);
      clock_.Advance(absl::Minutes(10));
    }
    std::vector<std::string> billing = account_->Billing();
    const std::vector<Lease> open = ledger_->List(/*open_only=*/true).value();
    if (leave_wanted && !open.empty()) {
      // It was claimed and nobody had ended it, so it belongs to the user.
      ASSERT_EQ(open.size(), 1u);
      EXPECT_EQ(open[0].state, LeaseState::kRented);
      EXPECT_NE(open[0].claimed_ms, 0);
      EXPECT_THAT(billing, ::testing::UnorderedElementsAre(kOther, kForeign, open[0].label));
      return;
    }
    EXPECT_THAT(open, IsEmpty());
    EXPECT_THAT(billing, ElementsAre(kOther, kForeign));
    const std::vector<Lease> all = ledger_->List(/*open_only=*/false).value();
    for (const Lease& lease : all) {
      if (lease.instance_id.empty()) continue;
      const double truth =
          lease.usd_per_hour() * absl::ToDoubleHours(account_->Billed(lease.instance_id));
      const Spend spend = SpentOn(lease, ledger_->NowMs());
      EXPECT_LE(spend.low_usd, truth + kMillisecondUsd);
      EXPECT_GE(spend.high_usd, truth - kMillisecondUsd);
    }
  }

  std::unique_ptr<BillingMarket> world_;
  std::string state_;
  bool claimed_ = false;
};

TEST_P(FaultMatrix, KilledAtEveryWriteAndCall) {
  int rounds = 0;
  for (bool died = true; died; ++rounds) {
    SCOPED_TRACE(absl::StrCat("dies at point ", rounds));
    ASSERT_LT(rounds, 500);
    Begin(rounds);
    claimed_ = false;
    died = false;
    int point = 0;
    const auto step = [&] {
      if (point++ == rounds) throw Killed();
    };
    world_->hook = [&](absl::string_view, bool) { step(); };
    ledger_->SetWriteHook([&](absl::string_view, bool) {
      step();
      return absl::OkStatus();
    });
    try {
      LaunchAndRelease();
    } catch (const Killed&) {
      died = true;
    }
    ReapAndCheck(/*leave_wanted=*/claimed_ || died);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(rounds, 15);  // intend, rent, rented, describe, address, claimed, releasing, …
}

TEST_P(FaultMatrix, EveryNthWriteFails) {
  for (const bool for_ever : {false, true}) {
    bool failed = true;
    for (int n = 0; failed; ++n) {
      SCOPED_TRACE(absl::StrCat("write ", n, " fails", for_ever ? " and all after it" : ""));
      ASSERT_LT(n, 100);
      Begin(for_ever ? 1000 + n : n);
      failed = false;
      claimed_ = false;
      int writes = 0;
      ledger_->SetWriteHook([&](absl::string_view, bool done) {
        const bool fails = !done && (for_ever ? writes >= n : writes == n);
        writes += done ? 0 : 1;
        failed |= fails;
        return fails ? absl::ResourceExhaustedError("disk full") : absl::OkStatus();
      });
      LaunchAndRelease();
      ReapAndCheck(claimed_);
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Launches, FaultMatrix,
    ::testing::Values(
        Scenario{"answered", BillingMarket::Create::kAnswers, absl::ZeroDuration(), 0},
        Scenario{"lagging", BillingMarket::Create::kAnswers, absl::Seconds(90), 2},
        Scenario{"lost", BillingMarket::Create::kLostButThere, absl::Seconds(50), 1},
        Scenario{"lost_and_not", BillingMarket::Create::kLostAndNot, absl::ZeroDuration(), 0},
        Scenario{"twice", BillingMarket::Create::kLostAndTwice, absl::Seconds(20), 1}),
    [](const auto& parameter) { return std::string(parameter.param.name); });

}  // namespace
}  // namespace gpuctl
