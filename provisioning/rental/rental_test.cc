#include "provisioning/rental/rental.h"

#include "provisioning/rental/test_rental_fixture.h"

namespace gpuctl {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RentalTest : public RentalFixture {};

TEST_F(RentalTest, RentsUnderTheLabelOfItsLease) {
  const auto rental = RentOne();
  ASSERT_OK(rental);
  EXPECT_THAT(account_->Billing(), ::testing::ElementsAre(rental->lease.label));
  EXPECT_EQ(rental->lease.state, LeaseState::kRented);
  EXPECT_EQ(rental->lease.instance_id, rental->instance.id);
  EXPECT_TRUE(rental->lock.held());
  EXPECT_EQ(market_.rents, 1);
}

TEST_F(RentalTest, TheIntentIsWrittenBeforeTheMarketIsAskedAndTheLeaseIsLockedThen) {
  bool looked = false;
  market_.hook = [&](absl::string_view call, bool done) {
    if (call != "rent" || done) return;
    const std::vector<Lease> leases = Leases();
    ASSERT_THAT(leases, SizeIs(1));
    EXPECT_EQ(leases[0].state, LeaseState::kIntent);
    EXPECT_TRUE(LeaseLock::IsHeld(ledger_->state_dir(), leases[0].lease_id).value());
    looked = true;
  };
  ASSERT_OK(RentOne());
  EXPECT_TRUE(looked);
}

TEST_F(RentalTest, ARefusalClosesTheIntent) {
  market_.refusal = absl::AbortedError("out of stock");
  EXPECT_THAT(RentOne(), StatusIs(absl::StatusCode::kAborted, HasSubstr("out of stock")));
  ASSERT_THAT(Leases(), SizeIs(1));
  EXPECT_EQ(Leases()[0].state, LeaseState::kNotCreated);
}

TEST_F(RentalTest, AnOfferOfAnotherMarketIsNotEvenIntended) {
  LeaseTerms terms = Terms();
  terms.offer.provider = "else";
  EXPECT_THAT(Rent(*ledger_, market_, terms, {}, clock_, Hooks()),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Leases(), IsEmpty());
}

class LostAnswer : public RentalFixture, public ::testing::WithParamInterface<absl::StatusCode> {};

TEST_P(LostAnswer, IsFoundByItsLabelThoughTheListLags) {
  market_.lost = absl::Status(GetParam(), "no answer");
  market_.creates = {BillingMarket::Create::kLostButThere};
  market_.list_lag = absl::Seconds(70);
  market_.list_answers = {absl::UnavailableError("503"), absl::InternalError("HTML")};
  const auto rental = RentOne();
  ASSERT_OK(rental);
  EXPECT_EQ(market_.rents, 1);
  EXPECT_THAT(account_->BillingIds(), ::testing::ElementsAre(rental->instance.id));
  EXPECT_EQ(rental->lease.state, LeaseState::kRented);
  EXPECT_THAT(told_, Contains(HasSubstr("was lost")));
}

TEST_P(LostAnswer, StaysOpenWhenNothingIsEverListed) {
  market_.lost = absl::Status(GetParam(), "no answer");
  market_.creates = {BillingMarket::Create::kLostAndNot};
  const absl::Duration begin = clock_.SinceBoot();
  const absl::Status status = RentOne().status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("gpuctl reap")));
  EXPECT_THAT(std::string(status.message()), HasSubstr(Leases()[0].label));
  EXPECT_GE(clock_.SinceBoot() - begin, absl::Minutes(2));
  EXPECT_LT(clock_.SinceBoot() - begin, absl::Minutes(3));
  EXPECT_EQ(Leases()[0].state, LeaseState::kIntent);
  EXPECT_EQ(market_.rents, 1);
}

INSTANTIATE_TEST_SUITE_P(Codes, LostAnswer,
                         ::testing::Values(absl::StatusCode::kUnknown,
                                           absl::StatusCode::kDeadlineExceeded,
                                           absl::StatusCode::kInternal,
                                           absl::StatusCode::kNotFound));

TEST_F(RentalTest, ListsThatFailAreNotEmptyLists) {
  market_.creates = {BillingMarket::Create::kLostAndNot};
  market_.list_answers.assign(1000, absl::UnavailableError("503"));
  EXPECT_THAT(RentOne(), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(Leases()[0].state, LeaseState::kIntent);
}

TEST_F(RentalTest, OfTwoUnderOneLabelOneIsKept) {
  market_.creates = {BillingMarket::Create::kLostAndTwice};
  const auto rental = RentOne();
  ASSERT_OK(rental);
  EXPECT_THAT(account_->BillingIds(), ::testing::ElementsAre(rental->instance.id));
}

TEST_F(RentalTest, AfterARefusedEndOneAnswerThatItIsGoneIsNotEnough) {
  const Lease lease = RentAndClaim();
  market_.terminate_answers = {absl::UnavailableError("500")};
  market_.describe_answers = {absl::NotFoundError("404 of a proxy")};
  ASSERT_OK(Release(*ledger_, market_, lease.lease_id, clock_, Hooks()));
  EXPECT_THAT(account_->Billing(), IsEmpty());
  EXPECT_EQ(market_.terminates, 2);
}

TEST_F(RentalTest, AMarketThatDoesNotKnowANewMachineYetIsAskedUntilItDoes) {
  absl::StatusOr<Rental> rental = RentOne();
  ASSERT_OK(rental);
  const Lease lease = rental->lease;
  market_.describe_lag = market_.terminate_lag = market_.list_lag = absl::Seconds(90);
  EXPECT_OK(Release(*ledger_, market_, lease.lease_id, clock_, Hooks(), {.lock = &rental->lock}));
  EXPECT_THAT(account_->Billing(), IsEmpty());
  EXPECT_LE(account_->Billed(lease.instance_id), absl::Seconds(110));
  EXPECT_THAT(told_, Contains(HasSubstr("does not know")));
}

TEST_F(RentalTest, AMachineThatIsGoneBeforeItWasClaimedIsBelievedGoneAfterTwoMinutes) {
  absl::StatusOr<Rental> rental = RentOne();
  ASSERT_OK(rental);
  account_->End(rental->lease.instance_id);
  const absl::Duration begin = clock_.SinceBoot();
  EXPECT_OK(
      Release(*ledger_, market_, rental->lease.lease_id, clock_, Hooks(), {.lock = &rental->lock}));
  EXPECT_GE(clock_.SinceBoot() - begin, absl::Minutes(1));
  EXPECT_LE(clock_.SinceBoot() - begin, absl::Minutes(3));
}

// As when the end of an earlier gpuctl was not recorded.
TEST_F(RentalTest, AClaimedMachineThatIsGoneIsBelievedGoneAtOnce) {
  const Lease lease = RentAndClaim();
  account_->End(lease.instance_id);
  const absl::Duration begin = clock_.SinceBoot();
  EXPECT_OK(Release(*ledger_, market_, lease.lease_id, clock_, Hooks()));
  EXPECT_LE(clock_.SinceBoot() - begin, absl::Seconds(1));
}

TEST_F(RentalTest, ABusyMarketIsAskedAgain) {
  market_.lost = BusyError("429");
  market_.creates = {BillingMarket::Create::kLostAndNot, BillingMarket::Create::kLostAndNot};
  const auto rental = RentOne();
  ASSERT_OK(rental);
  EXPECT_EQ(market_.rents, 3);
  EXPECT_THAT(account_->BillingIds(), ::testing::ElementsAre(rental->instance.id));
}

TEST_F(RentalTest, WhatABusyMarketMadeAllTheSameIsTheOneThatIsKept) {
  market_.lost = BusyError("429");
  market_.creates = {BillingMarket::Create::kLostButThere};
  const auto rental = RentOne();
  ASSERT_OK(rental);
  EXPECT_EQ(market_.rents, 1);
  EXPECT_THAT(account_->BillingIds(), ::testing::ElementsAre(rental->instance.id));
}

TEST_F(RentalTest, ABusyMarketIsNotAskedAgainWithoutAList) {
  market_.lost = BusyError("429");
  market_.creates = {BillingMarket::Create::kLostAndNot};
  market_.list_answers = {absl::UnknownError("HTML")};
  EXPECT_THAT(RentOne(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("HTML")));
  EXPECT_EQ(market_.rents, 1);
  EXPECT_EQ(Leases()[0].state, LeaseState::kNotCreated);
}

TEST_F(RentalTest, ABusyMarketIsAskedForAMinute) {
  market_.refusal = BusyError("429");
  const absl::Duration begin = clock_.SinceBoot();
  EXPECT_THAT(RentOne(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("429")));
  EXPECT_GE(market_.rents, 5);
  EXPECT_GE(clock_.SinceBoot() - begin, absl::Seconds(40));
  EXPECT_LE(clock_.SinceBoot() - begin, absl::Minutes(1));
  EXPECT_EQ(Leases()[0].state, LeaseState::kNotCreated);
}

TEST_F(RentalTest, WhatTheLedgerCannotHoldIsEnded) {
  ledger_->SetWriteHook([](absl::string_view change, bool done) {
    return change == "rented" && !done ? absl::ResourceExhaustedError("disk full")
                                       : absl::OkStatus();
  });
  EXPECT_THAT(RentOne(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ended again")));
  EXPECT_THAT(account_->Billing(), IsEmpty());
}

TEST_F(RentalTest, InterruptedBeforeItAskedNothingBills) {
  cancelled_ = true;
  EXPECT_THAT(RentOne(), StatusIs(absl::StatusCode::kCancelled, HasSubstr("nothing bills")));
  EXPECT_EQ(market_.rents, 0);
  EXPECT_THAT(Leases(true), IsEmpty());
}

TEST_F(RentalTest, InterruptedWhileTheMarketAnswersItIsEnded) {
  market_.hook = [&](absl::string_view call, bool done) { cancelled_ |= call == "rent" && done; };
  EXPECT_THAT(RentOne(), StatusIs(absl::StatusCode::kCancelled, HasSubstr("nothing bills")));
  EXPECT_EQ(market_.rents, 1);
  EXPECT_THAT(account_->Billing(), IsEmpty());
  EXPECT_THAT(Leases(true), IsEmpty());
}

TEST_F(RentalTest, InterruptedWhileLookingItSaysWhatMayBill) {
  market_.creates = {BillingMarket::Create::kLostButThere};
  market_.list_lag = absl::Minutes(1);
  market_.hook = [&](absl::string_view call, bool) { cancelled_ |= call == "list"; };
  const absl::Status status = RentOne().status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled, HasSubstr("gpuctl reap")));
  EXPECT_THAT(std::string(status.message()), HasSubstr(Leases()[0].label));
  EXPECT_EQ(Leases()[0].state, LeaseState::kIntent);
}

TEST_F(RentalTest, AReleaseIsOneOnlyWhenTheMarketSaysGone) {
  const Lease lease = RentAndClaim();
  market_.ignored_terminates = 2;
  market_.terminate_answers = {absl::UnavailableError("503")};
  market_.describe_answers = {absl::UnavailableError("503")};
  bool early = false;
  market_.hook = [&](absl::string_view, bool) {
    early |= ledger_->Get(lease.lease_id)->state == LeaseState::kReleased;
  };
  const auto released = Release(*ledger_, market_, lease.lease_id, clock_, Hooks());
  ASSERT_OK(released);
  EXPECT_FALSE(early);
  EXPECT_EQ(released->state, LeaseState::kReleased);
  EXPECT_THAT(account_->Billing(), IsEmpty());
  EXPECT_GE(market_.terminates, 4);
}

TEST_F(RentalTest, TheBooksHoldTheTrueBill) {
  const Lease lease = RentAndClaim();
  clock_.Advance(absl::Minutes(90));
  market_.ignored_terminates = 3;
  const auto released = Release(*ledger_, market_, lease.lease_id, clock_, Hooks());
  ASSERT_OK(released);
  const double truth = 2.0 * absl::ToDoubleHours(account_->Billed(lease.instance_id));
  const Spend spend = SpentOn(*released, ledger_->NowMs() + 1'000'000);
  EXPECT_LE(spend.low_usd, truth + 1e-9);
  EXPECT_GE(spend.high_usd, truth - 1e-9);
  EXPECT_LT(spend.high_usd - spend.low_usd, 2.0 * 3 / 60);  // the lag and a quantum
}

TEST_F(RentalTest, WhatAMarketShowsAfterTheEndIsNoProofOfABill) {
  const Lease lease = RentAndClaim();
  clock_.Advance(absl::Minutes(90));
  market_.ended_lag = absl::Seconds(90);
  const auto released = Release(*ledger_, market_, lease.lease_id, clock_, Hooks());
  ASSERT_OK(released);
  const double truth = 2.0 * absl::ToDoubleHours(account_->Billed(lease.instance_id));
  const Spend spend = SpentOn(*released, ledger_->NowMs());
  EXPECT_LE(spend.low_usd, truth + 1e-9);
  EXPECT_GE(spend.high_usd, truth + 2.0 * 90 / 3600 - 1e-9);
}

TEST_F(RentalTest, AMachineThatAMarketStillShowsAfterAnHourBilledForIt) {
  const Lease lease = RentAndClaim();
  ASSERT_OK(ledger_->Releasing(lease.lease_id));
  clock_.Advance(absl::Hours(1));
  ASSERT_OK(ledger_->Seen(lease.lease_id, ledger_->NowMs(), std::nullopt));
  const Spend spend = SpentOn(ledger_->Get(lease.lease_id).value(), ledger_->NowMs());
  EXPECT_NEAR(spend.low_usd, 2.0 * 58 / 60, 0.001);
  EXPECT_GE(spend.high_usd, 2.0 - 1e-9);
}

TEST_F(RentalTest, AReleaseThatIsNotConfirmedIsLoud) {
  const Lease lease = RentAndClaim();
  market_.ignored_terminates = 1000;
  const absl::Status status = Release(*ledger_, market_, lease.lease_id, clock_, Hooks()).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("may still bill")));
  EXPECT_THAT(std::string(status.message()), HasSubstr(lease.instance_id));
  EXPECT_EQ(ledger_->Get(lease.lease_id)->state, LeaseState::kReleasing);
}

TEST_F(RentalTest, ABadKeyEndsTheReleaseAtOnce) {
  const Lease lease = RentAndClaim();
  market_.terminate_answers = {absl::UnauthenticatedError("bad key")};
  const absl::Duration begin = clock_.SinceBoot();
  EXPECT_THAT(Release(*ledger_, market_, lease.lease_id, clock_, Hooks()),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("may still bill")));
  EXPECT_EQ(clock_.SinceBoot(), begin);
}

TEST_F(RentalTest, AnInterruptedReleaseSaysWhatBills) {
  const Lease lease = RentAndClaim();
  market_.ignored_terminates = 1000;
  market_.hook = [&](absl::string_view call, bool) { cancelled_ |= call == "terminate"; };
  EXPECT_THAT(Release(*ledger_, market_, lease.lease_id, clock_, Hooks()),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr(lease.instance_id)));
}

TEST_F(RentalTest, AProviderThatIsSilentIsWaitedForAsLongAsItSays) {
  const Lease lease = RentAndClaim();
  market_.market_traits.silence = absl::Seconds(30);
  market_.ignored_terminates = 1000;
  // What is answered, and shown, is no silence.
  const absl::Duration begin = clock_.SinceBoot();
  EXPECT_THAT(Release(*ledger_, market_, lease.lease_id, clock_, Hooks()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("still shows it")));
  EXPECT_GE(clock_.SinceBoot() - begin, absl::Minutes(5));
  // Its end was accepted, and nobody confirms it.
  market_.describe_answers.assign(1000, absl::UnavailableError("no answer"));
  const absl::Duration accepted = clock_.SinceBoot();
  EXPECT_THAT(
      Release(*ledger_, market_, lease.lease_id, clock_, Hooks()),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("it was told to end, and that")));
  EXPECT_LT(clock_.SinceBoot() - accepted, absl::Minutes(1));
  // Nothing is answered at all.
  market_.terminate_answers.assign(1000, absl::UnavailableError("no answer"));
  const absl::Duration silent = clock_.SinceBoot();
  EXPECT_THAT(Release(*ledger_, market_, lease.lease_id, clock_, Hooks()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("no answer; instance")));
  EXPECT_LT(clock_.SinceBoot() - silent, absl::Minutes(1));
  EXPECT_TRUE(ledger_->Get(lease.lease_id)->open());
}

TEST_F(RentalTest, ALookNotesWhatIsGoneByTwoAnswers) {
  const Lease lease = RentAndClaim();
  const auto look = [&](const LeaseLock* lock = nullptr) {
    return LookUp(*ledger_, market_, lease, clock_, ledger_->NowMs(), lock).status();
  };
  EXPECT_OK(look());
  market_.describe_answers = {absl::UnavailableError("503"), absl::NotFoundError("404")};
  EXPECT_THAT(look(), StatusIs(absl::StatusCode::kUnavailable));
  // The list has it.
  EXPECT_THAT(look(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("its list does not")));
  EXPECT_EQ(ledger_->Get(lease.lease_id)->state, LeaseState::kRented);
  account_->End(lease.instance_id);
  const auto lock = LeaseLock::Take(ledger_->state_dir(), lease.lease_id, clock_);
  ASSERT_OK(lock);
  // Somebody else is at work on it.
  EXPECT_THAT(look(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(ledger_->Get(lease.lease_id)->state, LeaseState::kRented);
  EXPECT_THAT(look(&*lock), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(ledger_->Get(lease.lease_id)->state, LeaseState::kReleased);
}

TEST_F(RentalTest, ReleasingTwiceIsReleasing) {
  const Lease lease = RentAndClaim();
  ASSERT_OK(Release(*ledger_, market_, lease.lease_id, clock_, Hooks()));
  const int asked = market_.terminates;
  ASSERT_OK(Release(*ledger_, market_, lease.lease_id, clock_, Hooks()));
  EXPECT_EQ(market_.terminates, asked);
}

TEST_F(RentalTest, TheCostOfAMachineThatWasGoneIsARange) {
  const Lease lease = RentAndClaim();
  clock_.Advance(absl::Hours(1));
  const int64_t heard_ms = ledger_->NowMs();
  clock_.Advance(absl::Hours(2));
  account_->End(lease.instance_id);
  ASSERT_OK(NoteGone(*ledger_, lease.lease_id, clock_, heard_ms, LeaseEnding::kGone));
  EXPECT_EQ(market_.terminates, 0);
  const auto released = ledger_->Get(lease.lease_id);
  ASSERT_OK(released);
  EXPECT_EQ(released->ended_after_ms, heard_ms);
  const Spend spent = SpentOn(*released, ledger_->NowMs());
  EXPECT_NEAR(spent.low_usd, lease.usd_per_hour(), 0.1 * lease.usd_per_hour());
  EXPECT_NEAR(spent.high_usd, 3 * lease.usd_per_hour(), 0.1 * lease.usd_per_hour());
}

TEST_F(RentalTest, AnOpenIntentCannotBeReleasedBlindly) {
  market_.creates = {BillingMarket::Create::kLostAndNot};
  ASSERT_FALSE(RentOne().ok());
  EXPECT_THAT(Release(*ledger_, market_, Leases()[0].lease_id, clock_, Hooks()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("reap")));
}

TEST_F(RentalTest, WaitsForWhatIsSuspendedAndNotForWhatIsHeld) {
  const auto rental = RentOne();
  ASSERT_OK(rental);
  const InstanceId& id = rental->instance.id;
  account_->Suspend(id, true);
  int looks = 0;
  market_.hook = [&](absl::string_view call, bool done) {
    if (call == "describe" && done && ++looks == 3) account_->Suspend(id, false);
  };
  ASSERT_OK(WaitReady(market_, id, absl::Minutes(10), clock_, Hooks()));
  EXPECT_EQ(looks, 4);
  account_->Hold(id, true);
  EXPECT_THAT(WaitReady(market_, id, absl::Minutes(10), clock_, Hooks()),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("will not come up")));
}

TEST_F(RentalTest, WaitsUntilThereIsAnAddress) {
  market_.boots_in = absl::Seconds(42);
  market_.describe_lag = absl::Seconds(8);
  const auto rental = RentOne();
  ASSERT_OK(rental);
  market_.describe_answers = {absl::UnavailableError("503")};
  const auto ready = WaitReady(market_, rental->instance.id, absl::Minutes(10), clock_, Hooks());
  ASSERT_OK(ready);
  EXPECT_EQ(ready->instance.address->port, 2222);
  ASSERT_THAT(ready->stages, SizeIs(2));
  EXPECT_EQ(ready->stages[0].name, "booting");
  EXPECT_EQ(ready->stages[1].name, "running");
  EXPECT_GE(ready->took, absl::Seconds(40));
  EXPECT_LE(ready->took, absl::Seconds(50));
}

TEST_F(RentalTest, AMachinesOwnPortIsBetterThanTheMarketsRelay) {
  market_.boots_in = absl::Seconds(30);
  market_.relayed_for = absl::Seconds(20);
  const auto direct = RentOne();
  ASSERT_OK(direct);
  const auto ready = WaitReady(market_, direct->instance.id, absl::Minutes(10), clock_, Hooks());
  ASSERT_OK(ready);
  EXPECT_EQ(ready->instance.address->host, "10.0.0.1");
  EXPECT_LE(ready->took, absl::Seconds(60));
}

TEST_F(RentalTest, AMachineThatOpensNoPortIsReachedByTheMarketsRelay) {
  market_.boots_in = absl::Seconds(30);
  market_.relayed_for = absl::InfiniteDuration();
  const auto rental = RentOne();
  ASSERT_OK(rental);
  const auto ready = WaitReady(market_, rental->instance.id, absl::Minutes(10), clock_, Hooks());
  ASSERT_OK(ready);
  EXPECT_EQ(ready->instance.address->host, "relay.example");
  EXPECT_GE(ready->took, absl::Seconds(60));
  EXPECT_LE(ready->took, absl::Seconds(90));
}

TEST_F(RentalTest, AMachineThatFailedIsGivenUpAtOnce) {
  const auto rental = RentOne();
  ASSERT_OK(rental);
  account_->SetState(rental->instance.id, Instance::State::kFailed, "unhealthy");
  EXPECT_THAT(WaitReady(market_, rental->instance.id, absl::Minutes(10), clock_, Hooks()),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("unhealthy")));
}

TEST_F(RentalTest, AMachineThatVanishesWhileBootingIsGivenUp) {
  const auto rental = RentOne();
  ASSERT_OK(rental);
  account_->End(rental->instance.id);
  EXPECT_THAT(WaitReady(market_, rental->instance.id, absl::Minutes(10), clock_, Hooks()),
              StatusIs(absl::StatusCode::kAborted));
}

TEST_F(RentalTest, WaitingHasAnEnd) {
  market_.boots_in = absl::Hours(1);
  const auto rental = RentOne();
  ASSERT_OK(rental);
  EXPECT_THAT(WaitReady(market_, rental->instance.id, absl::Minutes(10), clock_, Hooks()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("booting")));
  cancelled_ = true;
  EXPECT_THAT(WaitReady(market_, rental->instance.id, absl::Minutes(10), clock_, Hooks()),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("bills on")));
}

}  // namespace
}  // namespace gpuctl
