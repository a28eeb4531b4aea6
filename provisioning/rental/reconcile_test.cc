#include "provisioning/rental/reconcile.h"

#include <filesystem>

#include "provisioning/market/label.h"
#include "provisioning/rental/test_rental_fixture.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ReconcileTest : public RentalFixture {
 protected:
  Holder HolderOf(const Reconciliation& result, const std::string& id) {
    for (const SeenInstance& seen : result.instances) {
      if (seen.listed.instance.id == id) return seen.listed.holder;
    }
    ADD_FAILURE() << id << " is not there";
    return Holder::kForeign;
  }
};

TEST_F(ReconcileTest, TellsWhoseEverythingIs) {
  const Lease wanted = RentAndClaim();
  const auto launching = RentOne();  // its lock is held
  ASSERT_OK(launching);
  const std::string owner = ledger_->OwnerId().value();
  const InstanceId lost = account_->Add(FormatLabel({owner, "0123456789ab"}));
  const InstanceId other = account_->Add("gpuctl-00000000-0123456789ab");
  const InstanceId foreign = account_->Add("my-pod");
  const InstanceId unnamed = account_->Add("");
  const Reconciliation result = ReconcileNow();
  ASSERT_THAT(result.instances, SizeIs(6));
  EXPECT_EQ(HolderOf(result, wanted.instance_id), Holder::kWanted);
  EXPECT_EQ(HolderOf(result, launching->instance.id), Holder::kLaunching);
  EXPECT_EQ(HolderOf(result, lost), Holder::kLost);
  EXPECT_THAT(result.Leaks(), IsEmpty());
  EXPECT_THAT(result.Lost(), SizeIs(1));
  EXPECT_EQ(HolderOf(result, other), Holder::kOtherOwner);
  EXPECT_EQ(HolderOf(result, foreign), Holder::kForeign);
  EXPECT_EQ(HolderOf(result, unnamed), Holder::kForeign);
  EXPECT_THAT(result.unknown, IsEmpty());
  const auto listings = ledger_->LastListings();
  ASSERT_OK(listings);
  ASSERT_THAT(*listings, SizeIs(1));
  EXPECT_THAT(listings->front().instances, SizeIs(6));
}

TEST_F(ReconcileTest, ReapingTouchesLeaksOnly) {
  const Lease wanted = RentAndClaim();
  const auto launching = RentOne();
  ASSERT_OK(launching);
  const std::string leak = LeaveALeak();
  const std::string lost = FormatLabel({ledger_->OwnerId().value(), "0123456789ab"});
  account_->Add(lost);
  account_->Add("gpuctl-00000000-0123456789ab");
  account_->Add("my-pod");
  const ReapReport report = ReapNow();
  ASSERT_THAT(report.reaped, SizeIs(1));
  EXPECT_OK(report.reaped[0].status);
  EXPECT_EQ(report.reaped[0].instance.label, leak);
  std::vector<std::string> left = {wanted.label, launching->lease.label, "my-pod", lost,
                                   "gpuctl-00000000-0123456789ab"};
  std::sort(left.begin(), left.end());
  EXPECT_EQ(account_->Billing(), left);
}

TEST_F(ReconcileTest, ALaunchThatDiedBeforeTheNodeTookOverLeavesALeak) {
  absl::StatusOr<Rental> rental = RentOne();
  ASSERT_OK(rental);
  rental->lock.Drop();
  const Reconciliation result = ReconcileNow();
  ASSERT_THAT(result.Leaks(), SizeIs(1));
  EXPECT_THAT(result.Leaks()[0]->listed.why, HasSubstr("before the node took over"));
}

TEST_F(ReconcileTest, AMachineThatHasCostItsLimitIsALeak) {
  const Lease lease = RentAndClaim();
  LeaseLimits limits = lease.limits;
  limits.cost_usd = lease.usd_per_hour() * 2;
  ASSERT_OK(ledger_->UsedBy(lease.lease_id, "r-2", "two", limits));
  clock_.Advance(absl::Minutes(119));
  EXPECT_EQ(HolderOf(ReconcileNow(), lease.instance_id), Holder::kWanted);
  clock_.Advance(absl::Minutes(3));
  const Reconciliation result = ReconcileNow();
  ASSERT_THAT(result.Leaks(), SizeIs(1));
  EXPECT_THAT(result.Leaks()[0]->listed.why, HasSubstr("cost"));
  ReapNow();
  EXPECT_THAT(account_->Billing(), IsEmpty());
}

TEST_F(ReconcileTest, AMachineWhoseLimitsAreOverIsALeak) {
  const Lease lease = RentAndClaim();
  std::string why = "its idle limit is over";
  int asked = 0;
  const WhyDue why_due = [&](const std::vector<DueQuestion>& machines) {
    EXPECT_EQ(machines.size(), 1u);
    EXPECT_EQ(machines.at(0).lease.lease_id, lease.lease_id);
    ++asked;
    return std::vector<std::string>{why};
  };
  // Without the question it is not a leak.
  EXPECT_TRUE(ReconcileNow().Leaks().empty());
  // Another run took it between the question and the end.
  const WhyDue once = [&](const std::vector<DueQuestion>&) {
    return std::vector<std::string>{++asked == 1 ? why : ""};
  };
  auto report = Reap(*ledger_, Markets(), clock_, Hooks(), {{once, {}}, false, {}});
  ASSERT_OK(report);
  ASSERT_EQ(report->reaped.size(), 1u);
  EXPECT_THAT(report->reaped[0].status, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(ledger_->Get(lease.lease_id)->state, LeaseState::kRented);

  report = Reap(*ledger_, Markets(), clock_, Hooks(), {{why_due, {}}, false, {}});
  ASSERT_OK(report);
  ASSERT_EQ(report->reaped.size(), 1u);
  EXPECT_OK(report->reaped[0].status);
  EXPECT_EQ(report->reaped[0].why, why);
  EXPECT_EQ(ledger_->Get(lease.lease_id)->how_ended, "reaped: its idle limit is over");
  EXPECT_EQ(asked, 4);
}

TEST_F(ReconcileTest, AllMachinesAreAskedForTheirLimitsTogether) {
  const std::vector<Lease> leases = {RentAndClaim(), RentAndClaim(), RentAndClaim()};
  // A machine that nobody wants is not asked.
  ASSERT_OK(ledger_->Releasing(leases[0].lease_id));
  std::vector<std::vector<std::string>> asked;
  const WhyDue why_due = [&](const std::vector<DueQuestion>& machines) {
    std::vector<std::string>& ids = asked.emplace_back();
    std::vector<std::string> whys;
    for (const DueQuestion& machine : machines) {
      EXPECT_EQ(machine.provider, &market_);
      ids.push_back(machine.lease.lease_id);
      whys.push_back(machine.lease.lease_id == leases[2].lease_id ? "its time is over" : "");
    }
    return whys;
  };
  const absl::StatusOr<Reconciliation> found =
      Reconcile(*ledger_, Markets(), clock_, {why_due, {}});
  ASSERT_OK(found);
  EXPECT_THAT(asked,
              ElementsAre(::testing::UnorderedElementsAre(leases[1].lease_id, leases[2].lease_id)));
  EXPECT_EQ(HolderOf(*found, leases[0].instance_id), Holder::kLeak);
  EXPECT_EQ(HolderOf(*found, leases[1].instance_id), Holder::kWanted);
  EXPECT_EQ(HolderOf(*found, leases[2].instance_id), Holder::kLeak);
  // The stored listing says the same.
  const std::vector<MarketListing> kept = ledger_->LastListings().value();
  ASSERT_EQ(kept.size(), 1u);
  for (const ListedInstance& listed : kept[0].instances) {
    EXPECT_EQ(listed.holder, HolderOf(*found, listed.instance.id)) << listed.instance.id;
  }
}

TEST_F(ReconcileTest, ALeaseThatIsReleasedAndStillBillsIsALeak) {
  const Lease lease = RentAndClaim();
  ASSERT_OK(ledger_->Releasing(lease.lease_id));
  EXPECT_EQ(HolderOf(ReconcileNow(), lease.instance_id), Holder::kLeak);
  ASSERT_OK(ledger_->Released(lease.lease_id, ledger_->NowMs(), "released"));
  EXPECT_EQ(HolderOf(ReconcileNow(), lease.instance_id), Holder::kLeak);
  ReapNow();
  EXPECT_THAT(account_->Billing(), IsEmpty());
  EXPECT_EQ(ledger_->Get(lease.lease_id)->state, LeaseState::kReleased);
}

TEST_F(ReconcileTest, AListThatLagsBehindAReleaseIsNoLeak) {
  const Lease lease = RentAndClaim();
  ASSERT_OK(ledger_->Releasing(lease.lease_id));
  ASSERT_OK(ledger_->Released(lease.lease_id, ledger_->NowMs(), "released"));
  market_.describe_answers = {absl::NotFoundError("gone")};
  EXPECT_THAT(ReconcileNow().instances, IsEmpty());
}

TEST_F(ReconcileTest, AnOpenIntentIsSettledByTwoListingsTwoMinutesApart) {
  market_.creates = {BillingMarket::Create::kLostAndNot};
  ASSERT_FALSE(RentOne().ok());
  EXPECT_THAT(ReconcileNow().unsettled, SizeIs(1));
  clock_.Advance(absl::Seconds(60));
  EXPECT_THAT(ReconcileNow().unsettled, SizeIs(1));
  clock_.Advance(absl::Seconds(59));
  EXPECT_THAT(ReconcileNow().unsettled, SizeIs(1));
  clock_.Advance(absl::Seconds(1));
  const Reconciliation result = ReconcileNow();
  EXPECT_THAT(result.unsettled, IsEmpty());
  EXPECT_THAT(result.not_created, SizeIs(1));
  EXPECT_EQ(Leases()[0].state, LeaseState::kNotCreated);
}

// The patience of a reap counts from the first list: a slow one takes nothing away from it.
TEST_F(ReconcileTest, AReapWhoseListsAreSlowSettlesAnOpenIntentAllTheSame) {
  for (const absl::Duration slow : {absl::Seconds(1), absl::Seconds(25), absl::Seconds(130)}) {
    SCOPED_TRACE(absl::FormatDuration(slow));
    market_.creates = {BillingMarket::Create::kLostAndNot};
    ASSERT_FALSE(RentOne().ok());
    market_.hook = [&](absl::string_view call, bool done) {
      if (call == "list" && !done) clock_.Advance(slow);
    };
    EXPECT_THAT(ReapNow().last.unsettled, IsEmpty());
    market_.hook = nullptr;
  }
}

TEST_F(ReconcileTest, AnOpenIntentIsSettledThoughTheClockWentBack) {
  market_.creates = {BillingMarket::Create::kLostAndNot};
  ASSERT_FALSE(RentOne().ok());
  clock_.JumpWall(-absl::Hours(1));
  EXPECT_THAT(ReconcileNow().unsettled, SizeIs(1));
  clock_.Advance(absl::Minutes(2));
  EXPECT_THAT(ReconcileNow().not_created, SizeIs(1));
}

TEST_F(ReconcileTest, AClockThatGoesBackBetweenTwoListingsCostsTwoMinutes) {
  market_.creates = {BillingMarket::Create::kLostAndNot};
  ASSERT_FALSE(RentOne().ok());
  clock_.Advance(absl::Seconds(60));
  EXPECT_THAT(ReconcileNow().unsettled, SizeIs(1));
  clock_.JumpWall(-absl::Hours(1));
  EXPECT_THAT(ReconcileNow().unsettled, SizeIs(1));
  clock_.Advance(absl::Minutes(2));
  EXPECT_THAT(ReconcileNow().not_created, SizeIs(1));
}

TEST_F(ReconcileTest, ALeaseWhoseMachineIsGoneIsClosedThoughTheClockWentBack) {
  const Lease lease = RentAndClaim();
  ASSERT_OK(ledger_->Releasing(lease.lease_id));
  ASSERT_OK(market_.Terminate(lease.instance_id));
  market_.list_lag = absl::ZeroDuration();
  clock_.JumpWall(-absl::Hours(1));
  EXPECT_THAT(ReconcileNow().unsettled, SizeIs(1));
  clock_.Advance(absl::Minutes(1));
  EXPECT_THAT(ReconcileNow().unsettled, SizeIs(1));
  clock_.Advance(absl::Minutes(1));
  EXPECT_THAT(ReconcileNow().unsettled, IsEmpty());
  EXPECT_EQ(Leases()[0].state, LeaseState::kReleased);
}

TEST_F(ReconcileTest, AMachineWhoseOwnIdleLimitIsOverIsGoneWhenItsMarketSaysSo) {
  const Lease lease = RentAndClaim();
  LeaseLimits limits = lease.limits;
  limits.idle_s = 10;
  market_.market_traits.ends_itself = EndsItself::kByKey;
  ASSERT_OK(ledger_->UsedBy(lease.lease_id, "r-2", "two", limits));
  ASSERT_OK(market_.Terminate(lease.instance_id));
  clock_.Advance(absl::Seconds(9));
  EXPECT_THAT(ReconcileNow().unsettled, SizeIs(1)) << "its list may lag behind";
  clock_.Advance(absl::Seconds(2));
  const Reconciliation result = ReconcileNow();
  EXPECT_THAT(result.unsettled, IsEmpty());
  EXPECT_THAT(result.ended_outside, SizeIs(1));
}

TEST_F(ReconcileTest, ListingsThatFailDoNotSettleAnIntent) {
  market_.creates = {BillingMarket::Create::kLostAndNot};
  ASSERT_FALSE(RentOne().ok());
  for (int i = 0; i < 5; ++i) {
    market_.list_answers = {absl::UnavailableError("410")};
    const Reconciliation result = ReconcileNow();
    ASSERT_THAT(result.unknown, SizeIs(1));
    EXPECT_THAT(result.unknown[0].leases, SizeIs(1));
    clock_.Advance(absl::Minutes(5));
  }
  EXPECT_EQ(Leases()[0].state, LeaseState::kIntent);
}

TEST_F(ReconcileTest, AnOpenIntentThatIsThereAfterAllIsALeak) {
  market_.creates = {BillingMarket::Create::kLostButThere};
  market_.list_lag = absl::Minutes(5);
  ASSERT_FALSE(RentOne().ok());
  EXPECT_THAT(ReconcileNow().Leaks(), IsEmpty());
  clock_.Advance(absl::Minutes(3));
  ASSERT_THAT(ReconcileNow().Leaks(), SizeIs(1));
  ReapNow();
  EXPECT_THAT(account_->Billing(), IsEmpty());
  EXPECT_EQ(Leases()[0].state, LeaseState::kReleased);
}

TEST_F(ReconcileTest, WhatWasTakenForNeverCreatedIsStillEndedWhenItShowsUp) {
  market_.creates = {BillingMarket::Create::kLostButThere};
  market_.list_lag = absl::Minutes(20);
  ASSERT_FALSE(RentOne().ok());
  ReapNow();
  EXPECT_EQ(Leases()[0].state, LeaseState::kNotCreated);
  clock_.Advance(absl::Minutes(20));
  ReapNow();
  EXPECT_THAT(account_->Billing(), IsEmpty());
  EXPECT_GT(SpentOn(Leases()[0], ledger_->NowMs()).high_usd, 0);
}

TEST_F(ReconcileTest, ReapWaitsForWhatIsNotListedYet) {
  market_.creates = {BillingMarket::Create::kLostButThere};
  market_.list_lag = absl::Seconds(110);
  market_.hook = [](absl::string_view call, bool done) {
    if (call == "rent" && done) throw 1;
  };
  EXPECT_THROW(RentOne().IgnoreError(), int);
  market_.hook = {};
  const ReapReport report = ReapNow();
  EXPECT_THAT(report.reaped, SizeIs(1));
  EXPECT_THAT(report.last.unsettled, IsEmpty());
  EXPECT_THAT(account_->Billing(), IsEmpty());
}

TEST_F(ReconcileTest, AWantedMachineThatEndedByItselfTakesTwoWitnesses) {
  const Lease lease = RentAndClaim();
  clock_.Advance(absl::Hours(1));
  ReconcileNow();
  const int64_t seen_ms = ledger_->NowMs();
  clock_.Advance(absl::Hours(1));
  account_->End(lease.instance_id);
  clock_.Advance(absl::Hours(1));
  market_.describe_answers = {absl::UnavailableError("503")};
  Reconciliation result = ReconcileNow();
  EXPECT_THAT(result.ended_outside, IsEmpty());
  ASSERT_THAT(result.unknown, SizeIs(1));
  EXPECT_THAT(result.unknown[0].leases, SizeIs(1));
  EXPECT_EQ(ledger_->Get(lease.lease_id)->state, LeaseState::kRented);
  result = ReconcileNow();
  ASSERT_THAT(result.ended_outside, SizeIs(1));
  const Lease ended = ledger_->Get(lease.lease_id).value();
  EXPECT_EQ(ended.state, LeaseState::kReleased);
  EXPECT_EQ(ended.ended_after_ms, seen_ms);
  const Spend spend = SpentOn(ended, ledger_->NowMs());
  EXPECT_NEAR(spend.low_usd, 2.0, 0.01);  // true: 4
  EXPECT_NEAR(spend.high_usd, 6.0, 0.01);
}

TEST_F(ReconcileTest, AWantedMachineThatTheListForgotIsStillWanted) {
  const Lease lease = RentAndClaim();
  clock_.Advance(absl::Hours(1));
  market_.list_lag = absl::Hours(2);
  const Reconciliation result = ReconcileNow();
  EXPECT_EQ(HolderOf(result, lease.instance_id), Holder::kWanted);
  EXPECT_THAT(result.ended_outside, IsEmpty());
}

TEST_F(ReconcileTest, AMarketThatCannotBeListedIsUnknownAndKeepsItsOldListing) {
  const Lease lease = RentAndClaim();
  ReconcileNow();
  const int64_t listed_ms = ledger_->NowMs();
  clock_.Advance(absl::Minutes(5));
  market_.list_answers = {absl::UnavailableError("503")};
  const Reconciliation result = ReconcileNow();
  EXPECT_THAT(result.instances, IsEmpty());
  ASSERT_THAT(result.unknown, SizeIs(1));
  EXPECT_EQ(result.unknown[0].name, "fake");
  ASSERT_THAT(result.unknown[0].leases, SizeIs(1));
  EXPECT_EQ(result.unknown[0].leases[0].lease_id, lease.lease_id);
  EXPECT_EQ(ledger_->LastListings()->front().listed_ms, listed_ms);
  EXPECT_THAT(ledger_->LastListings()->front().instances, SizeIs(1));
}

TEST_F(ReconcileTest, LeasesAtAMarketWithoutAKeyAreUnknown) {
  const Lease lease = RentAndClaim();
  for (const std::vector<ReconcileMarket>& markets :
       {std::vector<ReconcileMarket>{},
        std::vector<ReconcileMarket>{{"fake", nullptr, absl::UnauthenticatedError("no key")}}}) {
    const auto result = Reconcile(*ledger_, markets, clock_);
    ASSERT_OK(result);
    ASSERT_THAT(result->unknown, SizeIs(1));
    EXPECT_EQ(result->unknown[0].leases[0].lease_id, lease.lease_id);
  }
}

TEST_F(ReconcileTest, NoticesARaisedPrice) {
  const Lease lease = RentAndClaim();
  clock_.Advance(absl::Hours(1));
  account_->SetPrice(lease.instance_id, 2.75);
  const Reconciliation result = ReconcileNow();
  ASSERT_THAT(result.price_changes, SizeIs(1));
  EXPECT_DOUBLE_EQ(result.price_changes[0].before_usd_per_hour, 2.0);
  EXPECT_DOUBLE_EQ(result.price_changes[0].lease.usd_per_hour(), 2.75);
  EXPECT_THAT(ReconcileNow().price_changes, IsEmpty());
}

// A market where hosts announce price rises.
class RisingMarket : public BillingMarket {
 public:
  using BillingMarket::BillingMarket;
  absl::StatusOr<std::vector<PriceRise>> ListPriceRises() override {
    ++asked;
    return rises;
  }
  absl::StatusOr<std::vector<PriceRise>> rises = std::vector<PriceRise>();
  int asked = 0;
};

TEST_F(ReconcileTest, TellsPricesThatWillRise) {
  RisingMarket market("fake", account_, clock_);
  const std::vector<ReconcileMarket> markets = {{"fake", &market, absl::OkStatus()}};
  const InstanceId foreign = account_->Add("my-pod");
  // A market where nothing of ours bills is not asked.
  ASSERT_OK(Reconcile(*ledger_, markets, clock_));
  EXPECT_EQ(market.asked, 0);
  const Lease lease = RentAndClaim();
  PriceRise rise;
  rise.id = "7";
  rise.instance_id = lease.instance_id;
  rise.after_usd_per_hour = 4;
  PriceRise of_others = rise;
  of_others.instance_id = foreign;
  market.rises = std::vector<PriceRise>{of_others, rise};
  auto result = Reconcile(*ledger_, markets, clock_);
  ASSERT_OK(result);
  ASSERT_THAT(result->instances, SizeIs(2));
  for (const SeenInstance& seen : result->instances) {
    EXPECT_EQ(seen.rise.has_value(), seen.listed.instance.id == lease.instance_id);
  }
  EXPECT_THAT(*ledger_->PriceRises(), SizeIs(1));
  // A failed question does not mean none: the known rises stay.
  market.rises = absl::UnavailableError("busy");
  result = Reconcile(*ledger_, markets, clock_);
  ASSERT_OK(result);
  ASSERT_THAT(result->rises_unknown, SizeIs(1));
  EXPECT_EQ(result->rises_unknown[0].name, "fake");
  EXPECT_THAT(result->unknown, IsEmpty());
  EXPECT_THAT(*ledger_->PriceRises(), SizeIs(1));
  market.rises = std::vector<PriceRise>();
  ASSERT_OK(Reconcile(*ledger_, markets, clock_));
  EXPECT_THAT(*ledger_->PriceRises(), IsEmpty());
}

TEST_F(ReconcileTest, ReadsWhatTrafficHasCost) {
  const Lease lease = RentAndClaim();
  market_.traffic_charges->emplace(lease.instance_id, 1.5);
  ReconcileNow();
  EXPECT_EQ(market_.charge_lists, 0) << "where traffic is free, nobody asks";
  ASSERT_OK(ledger_->SetTrafficPrices(lease.lease_id, 0.01, 0.01));
  const Reconciliation found = ReconcileNow();
  EXPECT_EQ(market_.charge_lists, 1);
  EXPECT_THAT(found.charges_unknown, IsEmpty());
  EXPECT_NEAR(KnownTraffic(*found.instances.at(0).lease).usd, 1.5, 1e-9);
  // It counts towards what the machine may cost.
  LeaseLimits limits = lease.limits;
  limits.cost_usd = 1;
  ASSERT_OK(ledger_->UsedBy(lease.lease_id, "r-2", "two", limits));
  ASSERT_THAT(ReconcileNow().Leaks(), SizeIs(1));
  ReapNow();
  EXPECT_THAT(account_->Billing(), IsEmpty());
  // The last charges may come after the machine's end, but not for ever.
  (*market_.traffic_charges)[lease.instance_id] = 2;
  clock_.Advance(absl::Hours(20));
  ReconcileNow();
  EXPECT_NEAR(KnownTraffic(ledger_->Get(lease.lease_id).value()).usd, 2, 1e-9);
  clock_.Advance(absl::Hours(40));
  const int asked = market_.charge_lists;
  ReconcileNow();
  EXPECT_EQ(market_.charge_lists, asked);
}

TEST_F(ReconcileTest, ChargesThatAreNotToldAreUnknown) {
  const Lease lease = RentAndClaim();
  ASSERT_OK(ledger_->SetTrafficPrices(lease.lease_id, 0.01, 0.01));
  market_.traffic_charges = absl::UnavailableError("busy");
  const Reconciliation found = ReconcileNow();
  ASSERT_THAT(found.charges_unknown, SizeIs(1));
  EXPECT_EQ(found.charges_unknown[0].name, "fake");
  EXPECT_EQ(HolderOf(found, lease.instance_id), Holder::kWanted);
  EXPECT_EQ(KnownTraffic(ledger_->Get(lease.lease_id).value()).usd, 0);
}

TEST_F(ReconcileTest, ADuplicateOfAWantedMachineIsEndedAlone) {
  const Lease lease = RentAndClaim();
  account_->Add(lease.label);
  const ReapReport report = ReapNow();
  ASSERT_THAT(report.reaped, SizeIs(1));
  EXPECT_OK(report.reaped[0].status);
  EXPECT_THAT(account_->BillingIds(), ElementsAre(lease.instance_id));
  EXPECT_EQ(ledger_->Get(lease.lease_id)->state, LeaseState::kRented);
}

TEST_F(ReconcileTest, ALeakThatCannotBeEndedIsReportedAndStaysOne) {
  LeaveALeak();
  market_.ignored_terminates = 1000;
  const ReapReport report = ReapNow();
  ASSERT_THAT(report.reaped, SizeIs(1));
  EXPECT_THAT(report.reaped[0].status, StatusIs(absl::StatusCode::kDeadlineExceeded));
  market_.ignored_terminates = 0;
  ReapNow();
  EXPECT_THAT(account_->Billing(), IsEmpty());
}

TEST_F(ReconcileTest, AMachineThatTheLedgerLostIsEndedOnlyWhenItIsNamed) {
  const InstanceId lost = account_->Add(FormatLabel({ledger_->OwnerId().value(), "0123456789ab"}));
  EXPECT_THAT(ReapNow().reaped, IsEmpty());
  EXPECT_THAT(account_->Billing(), SizeIs(1));
  ReapOptions options;
  options.lost = {lost};
  const auto report = Reap(*ledger_, Markets(), clock_, Hooks(), options);
  ASSERT_OK(report);
  ASSERT_THAT(report->reaped, SizeIs(1));
  EXPECT_OK(report->reaped[0].status);
  EXPECT_THAT(account_->Billing(), IsEmpty());
  EXPECT_EQ(ledger_->Get("0123456789ab")->state, LeaseState::kReleased);
}

TEST_F(ReconcileTest, AMachineThatTheLedgerTookBackIsWanted) {
  account_->Add(FormatLabel({ledger_->OwnerId().value(), "0123456789ab"}));
  const SeenInstance lost = *ReconcileNow().Lost().front();
  ASSERT_OK(ledger_->Adopt("fake", lost.listed.instance, 1, "", /*claimed=*/true));
  const Reconciliation result = ReconcileNow();
  EXPECT_EQ(HolderOf(result, lost.listed.instance.id), Holder::kWanted);
  EXPECT_THAT(ReapNow().reaped, IsEmpty());
}

// A copy of the state directory, made in the middle of a launch, while the original goes on.
TEST_F(ReconcileTest, ACopiedLedgerEndsNothingOfTheOriginals) {
  LedgerHome home;
  home.machine = "laptop";
  home.owner_dir = dir_.Sub("owners");
  ledger_ = Ledger::Open(dir_.Sub("state"), clock_, home).value();
  const std::string owner = ledger_->OwnerId().value();
  const Lease wanted = RentAndClaim();
  const auto launching = RentOne();
  ASSERT_OK(launching);
  std::filesystem::copy(dir_.Sub("state"), dir_.Sub("copy"));
  const auto copy = Ledger::Open(dir_.Sub("copy"), clock_, home).value();
  clock_.Advance(absl::Hours(1));
  const auto report = Reap(*copy, Markets(), clock_, Hooks());
  ASSERT_OK(report);
  EXPECT_THAT(report->reaped, IsEmpty());
  EXPECT_EQ(HolderOf(report->last, wanted.instance_id), Holder::kOtherOwner);
  EXPECT_EQ(HolderOf(report->last, launching->instance.id), Holder::kOtherOwner);
  EXPECT_THAT(account_->Billing(), SizeIs(2));
  // It goes on with the original's machines only when it is told to.
  ReapOptions options;
  options.reconcile.also_owners = {owner};
  const auto told = Reap(*copy, Markets(), clock_, Hooks(), options);
  ASSERT_OK(told);
  EXPECT_THAT(told->reaped, SizeIs(1));
  EXPECT_THAT(account_->Billing(), ElementsAre(wanted.label));
}

// The laptop's disk is full or read-only, from one moment to the next.
class FullDiskTest : public ReconcileTest {
 protected:
  void FillTheDisk() {
    ledger_->SetWriteHook([](absl::string_view, bool done) {
      return done ? absl::OkStatus() : absl::ResourceExhaustedError("the disk is full");
    });
  }
  void MakeRoom() { ledger_->SetWriteHook(nullptr); }
};

TEST_F(FullDiskTest, EndsTheBillFirst) {
  const Lease lease = RentAndClaim();
  FillTheDisk();
  const auto ended = Release(*ledger_, market_, lease.lease_id, clock_, Hooks());
  ASSERT_OK(ended);
  EXPECT_EQ(ended->state, LeaseState::kReleased);
  EXPECT_GT(ended->ended_ms, 0);
  EXPECT_THAT(account_->Billing(), IsEmpty());
  EXPECT_THAT(told_.back(), HasSubstr("the disk is full"));
  MakeRoom();
  clock_.Advance(absl::Minutes(5));
  EXPECT_THAT(ReconcileNow().ended_outside, SizeIs(1));
  EXPECT_EQ(ledger_->Get(lease.lease_id)->state, LeaseState::kReleased);
}

TEST_F(FullDiskTest, ReapEndsEveryLeakAndTellsWhatIsThere) {
  const Lease wanted = RentAndClaim();
  LeaveALeak();
  account_->Add(wanted.label);  // a duplicate
  market_.creates = {BillingMarket::Create::kLostButThere};
  market_.hook = [](absl::string_view call, bool done) {
    if (call == "rent" && done) throw 1;
  };
  EXPECT_THROW(RentOne().IgnoreError(), int);
  market_.hook = {};
  ASSERT_THAT(account_->Billing(), SizeIs(4));
  FillTheDisk();
  const ReapReport report = ReapNow(/*wait=*/false);
  EXPECT_THAT(report.reaped, SizeIs(3));
  for (const ReapedInstance& reaped : report.reaped) EXPECT_OK(reaped.status);
  EXPECT_THAT(account_->Billing(), ElementsAre(wanted.label));
  EXPECT_FALSE(report.last.unwritten.ok());
  EXPECT_EQ(HolderOf(report.last, wanted.instance_id), Holder::kWanted);
  MakeRoom();
  clock_.Advance(absl::Minutes(5));
  const ReapReport later = ReapNow();
  EXPECT_OK(later.last.unwritten);
  EXPECT_THAT(account_->Billing(), ElementsAre(wanted.label));
  EXPECT_THAT(Leases(/*open_only=*/true), SizeIs(1));
}

TEST_F(ReconcileTest, AClockThatIsWrongByDaysMakesNothingALeak) {
  Lease lease = RentAndClaim();
  LeaseLimits limits;
  limits.cost_usd = 10;
  limits.salvage_s = 60;
  ASSERT_OK(ledger_->UsedBy(lease.lease_id, "r-1", "amber-fox-1", limits));
  market_.creates = {BillingMarket::Create::kLostButThere};
  market_.list_lag = absl::Minutes(1);
  market_.hook = [](absl::string_view call, bool done) {
    if (call == "rent" && done) throw 1;
  };
  EXPECT_THROW(RentOne().IgnoreError(), int);
  market_.hook = {};
  clock_.Advance(absl::Hours(24 * 400));
  ReapOptions options;
  options.wait = false;
  options.reconcile.why_due = [](const std::vector<DueQuestion>& machines) {
    return std::vector<std::string>(machines.size(), "its limits are over");
  };
  market_.list_lag = absl::Hours(24 * 500);
  std::vector<ReconcileMarket> markets = Markets();
  markets[0].skew = [] { return absl::Hours(24 * 400); };
  auto report = Reap(*ledger_, markets, clock_, Hooks(), options);
  ASSERT_OK(report);
  EXPECT_THAT(report->reaped, IsEmpty());
  EXPECT_THAT(report->last.wrong_clock, SizeIs(1));
  EXPECT_THAT(report->last.unsettled, SizeIs(1));
  EXPECT_THAT(report->last.not_created, IsEmpty());
  EXPECT_THAT(account_->Billing(), SizeIs(2));
  const Lease after = ledger_->Get(lease.lease_id).value();
  EXPECT_EQ(after.seen_ms, lease.seen_ms);
  EXPECT_EQ(after.state, LeaseState::kRented);
  // The same time by a clock that is right.
  markets[0].skew = nullptr;
  market_.list_lag = absl::ZeroDuration();
  report = Reap(*ledger_, markets, clock_, Hooks(), options);
  ASSERT_OK(report);
  EXPECT_THAT(report->reaped, SizeIs(2));
}

TEST_F(ReconcileTest, AMachineThatWasRenamedAtTheMarketIsStillOurs) {
  const Lease wanted = RentAndClaim();
  std::string leak;
  {
    const auto rental = RentOne();
    ASSERT_OK(rental);
    leak = rental->instance.id;
  }
  account_->Rename(wanted.instance_id, "my favourite machine");
  account_->Rename(leak, "");
  const ReapReport report = ReapNow();
  EXPECT_EQ(HolderOf(report.last, wanted.instance_id), Holder::kWanted);
  ASSERT_THAT(report.reaped, SizeIs(1));
  EXPECT_EQ(report.reaped[0].instance.id, leak);
  EXPECT_THAT(account_->BillingIds(), ElementsAre(wanted.instance_id));
}

TEST_F(ReconcileTest, TwoOwnersOnOneAccountLeaveEachOtherAlone) {
  const std::unique_ptr<Ledger> other = OpenLedger("other");
  BillingMarket others_market("fake", account_, clock_);
  const Lease ours = RentAndClaim();
  LeaseTerms terms = Terms();
  absl::StatusOr<Rental> theirs = Rent(*other, others_market, terms, {}, clock_, {});
  ASSERT_OK(theirs);
  theirs->lock.Drop();  // a leak of theirs
  clock_.Advance(absl::Hours(1));
  EXPECT_THAT(ReapNow().reaped, IsEmpty());
  EXPECT_THAT(account_->Billing(), SizeIs(2));
  const auto report = Reap(*other, {{"fake", &others_market, absl::OkStatus()}}, clock_, {});
  ASSERT_OK(report);
  EXPECT_THAT(report->reaped, SizeIs(1));
  EXPECT_THAT(account_->Billing(), ElementsAre(ours.label));
}

// Another process reaps at every call of a launch.
TEST_F(ReconcileTest, AReapBesideALaunchNeverEndsIt) {
  const std::unique_ptr<Ledger> cron = OpenLedger("state");
  BillingMarket crons_market("fake", account_, clock_);
  int reaps = 0;
  market_.hook = [&](absl::string_view, bool) {
    const auto report =
        Reap(*cron, {{"fake", &crons_market, absl::OkStatus()}}, clock_, {}, {{}, false, {}});
    ASSERT_OK(report);
    EXPECT_THAT(report->reaped, IsEmpty());
    clock_.Advance(absl::Minutes(5));
    ++reaps;
  };
  market_.creates = {BillingMarket::Create::kLostButThere};
  const Lease lease = RentAndClaim();
  market_.hook("", true);
  EXPECT_GE(reaps, 5);
  EXPECT_THAT(account_->Billing(), ElementsAre(lease.label));
}

// A launch continues between the listing and the reading of the ledger.
TEST_F(ReconcileTest, WhatWasRentedWhileWeListedIsLeftAlone) {
  const std::unique_ptr<Ledger> cron = OpenLedger("state");
  BillingMarket crons_market("fake", account_, clock_);
  Lease lease;
  crons_market.hook = [&](absl::string_view call, bool done) {
    if (call != "list" || !done || !lease.lease_id.empty()) return;
    lease = RentAndClaim();
  };
  const auto report =
      Reap(*cron, {{"fake", &crons_market, absl::OkStatus()}}, clock_, {}, {{}, false, {}});
  ASSERT_OK(report);
  EXPECT_THAT(report->reaped, IsEmpty());
  EXPECT_THAT(report->last.ended_outside, IsEmpty());
  EXPECT_THAT(account_->Billing(), ElementsAre(lease.label));
  EXPECT_EQ(ledger_->Get(lease.lease_id)->state, LeaseState::kRented);
}

TEST_F(ReconcileTest, TwoReapsAtOnceEndALeakOnce) {
  LeaveALeak();
  const std::unique_ptr<Ledger> second = OpenLedger("state");
  BillingMarket second_market("fake", account_, clock_);
  bool busy = false;
  market_.hook = [&](absl::string_view call, bool done) {
    if (call != "terminate" || done) return;
    const auto report =
        Reap(*second, {{"fake", &second_market, absl::OkStatus()}}, clock_, {}, {{}, false, {}});
    ASSERT_OK(report);
    EXPECT_THAT(report->reaped, IsEmpty());  // somebody holds its lock
    busy = true;
  };
  const ReapReport report = ReapNow();
  EXPECT_TRUE(busy);
  ASSERT_THAT(report.reaped, SizeIs(1));
  EXPECT_OK(report.reaped[0].status);
  EXPECT_EQ(second_market.terminates, 0);
  EXPECT_THAT(account_->Billing(), IsEmpty());
}

}  // namespace
}  // namespace gpuctl
