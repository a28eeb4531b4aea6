// A key of another account, and a new key of the same one: what may be concluded from their lists.
#include "provisioning/rental/account.h"

#include "provisioning/rental/test_rental_fixture.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class AccountMarket : public BillingMarket {
 public:
  using BillingMarket::BillingMarket;
  absl::StatusOr<std::string> AccountId() override {
    ++asked;
    if (account_id.empty()) return absl::UnimplementedError("tells none");
    return account_id;
  }
  std::string account_id;
  int asked = 0;
};

class AccountTest : public RentalFixture {
 protected:
  AccountTest()
      : others_(std::make_shared<BillingAccount>(clock_)),
        mine_("fake", account_, clock_),
        mine_again_("fake", account_, clock_),
        other_("fake", others_, clock_) {
    mine_.set_key_print("aaaa");
    mine_again_.set_key_print("bbbb");
    other_.set_key_print("cccc");
  }
  Lease RentWith(Provider& provider) {
    const auto rental = Rent(*ledger_, provider, Terms(), {}, clock_, Hooks());
    EXPECT_OK(rental);
    if (!rental.ok()) return {};
    EXPECT_OK(ledger_->Claimed(rental->lease.lease_id, "n-1"));
    clock_.Advance(absl::Hours(1));
    return ledger_->Get(rental->lease.lease_id).value();
  }
  Reconciliation ReconcileWith(Provider& provider) {
    const auto result = Reconcile(*ledger_, {{"fake", &provider, absl::OkStatus()}}, clock_);
    EXPECT_OK(result);
    return result.ok() ? *result : Reconciliation();
  }
  LeaseState StateOf(const Lease& lease) { return ledger_->Get(lease.lease_id)->state; }

  std::shared_ptr<BillingAccount> others_;
  AccountMarket mine_, mine_again_, other_;
};

TEST_F(AccountTest, AListOfAnotherAccountSaysNothing) {
  const Lease lease = RentWith(mine_);
  const Reconciliation result = ReconcileWith(other_);
  ASSERT_THAT(result.unknown, SizeIs(1));
  EXPECT_THAT(result.unknown[0].leases, SizeIs(1));
  EXPECT_TRUE(absl::IsPermissionDenied(result.unknown[0].cause));
  EXPECT_THAT(result.ended_outside, IsEmpty());
  EXPECT_EQ(StateOf(lease), LeaseState::kRented);
  const auto reaped = Reap(*ledger_, {{"fake", &other_, absl::OkStatus()}}, clock_, Hooks());
  ASSERT_OK(reaped);
  EXPECT_THAT(reaped->reaped, IsEmpty());
  // The right key finds it wanted.
  const auto mine = Reap(*ledger_, {{"fake", &mine_, absl::OkStatus()}}, clock_, Hooks());
  ASSERT_OK(mine);
  EXPECT_THAT(mine->reaped, IsEmpty());
  EXPECT_THAT(mine->last.unknown, IsEmpty());
  EXPECT_THAT(account_->Billing(), SizeIs(1));
}

TEST_F(AccountTest, AKeyOfAnotherAccountEndsNothing) {
  const Lease lease = RentWith(mine_);
  const auto released = Release(*ledger_, other_, lease.lease_id, clock_, Hooks());
  EXPECT_TRUE(absl::IsPermissionDenied(released.status())) << released.status();
  EXPECT_THAT(std::string(released.status().message()), HasSubstr("--same-account"));
  EXPECT_EQ(StateOf(lease), LeaseState::kRented);
  EXPECT_EQ(other_.terminates, 0);
}

TEST_F(AccountTest, AnOpenIntentIsNotSettledByAnotherAccount) {
  mine_.creates = {BillingMarket::Create::kLostButThere};
  mine_.list_lag = absl::Hours(1);
  EXPECT_FALSE(Rent(*ledger_, mine_, Terms(), {}, clock_, Hooks()).ok());
  for (int i = 0; i < 3; ++i) {
    clock_.Advance(absl::Minutes(5));
    EXPECT_THAT(ReconcileWith(other_).unknown, SizeIs(1));
  }
  EXPECT_EQ(Leases()[0].state, LeaseState::kIntent);
}

TEST_F(AccountTest, AKeyThatShowsTheMachineIsOfItsAccount) {
  const Lease lease = RentWith(mine_);
  EXPECT_THAT(ReconcileWith(mine_again_).unknown, IsEmpty());
  account_->End(lease.instance_id);
  EXPECT_THAT(ReconcileWith(mine_again_).ended_outside, SizeIs(1));
}

TEST_F(AccountTest, AnIdOfTheAccountTellsToo) {
  mine_.account_id = mine_again_.account_id = "1234";
  other_.account_id = "5678";
  const Lease lease = RentWith(mine_);
  EXPECT_EQ(mine_.asked, 1);
  account_->End(lease.instance_id);
  EXPECT_THAT(ReconcileWith(other_).unknown, SizeIs(1));
  EXPECT_EQ(StateOf(lease), LeaseState::kRented);
  EXPECT_THAT(ReconcileWith(mine_again_).ended_outside, SizeIs(1));
  RentWith(mine_);
  EXPECT_EQ(mine_.asked, 1);
}

TEST_F(AccountTest, ALeaseOfAnOlderLedgerTakesTheKeyThatShowsIt) {
  const Lease lease = RentAndClaim();  // its market has no fingerprint
  EXPECT_EQ(lease.key_print, "");
  clock_.Advance(absl::Hours(1));
  EXPECT_THAT(ReconcileWith(mine_).unknown, IsEmpty());
  EXPECT_EQ(ledger_->Get(lease.lease_id)->key_print, "aaaa");
  EXPECT_THAT(ReconcileWith(other_).unknown, SizeIs(1));
}

TEST_F(AccountTest, KeysAreJoinedAcrossThree) {
  const Lease lease = RentWith(mine_);
  ASSERT_OK(ledger_->JoinAccounts("fake", "bbbb", "cccc"));
  ASSERT_OK(ledger_->JoinAccounts("fake", "aaaa", "bbbb"));
  EXPECT_TRUE(ledger_->IsOfAccount(lease, "cccc").value());
  EXPECT_FALSE(ledger_->IsOfAccount(lease, "dddd").value());
}

}  // namespace
}  // namespace gpuctl
