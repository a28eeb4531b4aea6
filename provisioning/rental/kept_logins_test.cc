#include "provisioning/rental/kept_logins.h"

#include <atomic>
#include <functional>
#include <thread>

#include "common/files/file_lock.h"
#include "provisioning/rental/test_rental_fixture.h"

namespace gpuctl {
namespace {

class LoginMarket : public BillingMarket {
 public:
  using BillingMarket::BillingMarket;
  absl::StatusOr<int> RemoveUnusedLogins(absl::string_view owner) override {
    owners.emplace_back(owner);
    if (during) during();
    return 1;
  }
  std::vector<std::string> owners;  // of each removal
  std::function<void()> during;
};

class KeptLogins : public RentalFixture {
 protected:
  KeptLogins() { logins_.market_traits.takes_login = true; }
  absl::Status RentWithLogin() {
    RentOptions options;
    options.registry_login = RegistryLogin{"ghcr.io", "ada", "secret"};
    return Rent(*ledger_, logins_, Terms(), options, clock_, Hooks()).status();
  }
  int Remove() {
    const absl::StatusOr<int> removed = RemoveKeptLogins(*ledger_, logins_);
    EXPECT_OK(removed);
    return removed.value_or(-1);
  }
  LoginMarket logins_{"fake", account_, clock_};
};

TEST_F(KeptLogins, NobodyIsAskedBeforeThereWasALogin) {
  ASSERT_OK(RentOne());
  EXPECT_EQ(Remove(), 0);
  EXPECT_TRUE(logins_.owners.empty());
  ASSERT_OK(RentWithLogin());
  EXPECT_EQ(Remove(), 1);
  EXPECT_EQ(logins_.owners, std::vector<std::string>{ledger_->OwnerId().value()});
}

TEST_F(KeptLogins, NoneIsRemovedWhileALaunchUsesOne) {
  bool looked = false;
  logins_.hook = [&](absl::string_view call, bool) {
    if (call != "rent") return;
    // Two launches at once do not wait for each other; a removal lets them be.
    EXPECT_OK(HoldKeptLogins(*ledger_, logins_));
    const auto other = OpenLedger("state");
    EXPECT_EQ(*RemoveKeptLogins(*other, logins_), 0);
    looked = true;
  };
  ASSERT_OK(RentWithLogin());
  EXPECT_TRUE(looked && logins_.owners.empty());
  logins_.hook = nullptr;
  EXPECT_EQ(Remove(), 1);
}

TEST_F(KeptLogins, ALaunchWaitsForARemoval) {
  ASSERT_OK(RentWithLogin());
  std::atomic<bool> removed{false};
  std::thread launch;
  logins_.during = [&] {
    EXPECT_TRUE(*IsLocked(ledger_->state_dir() + "/locks/logins-fake"));
    launch = std::thread([&] {
      EXPECT_OK(HoldKeptLogins(*ledger_, logins_));
      EXPECT_TRUE(removed);
    });
    removed = true;
  };
  EXPECT_EQ(Remove(), 1);
  launch.join();
}

TEST_F(KeptLogins, NoneIsRemovedWhileARentIsNotSettled) {
  logins_.creates = {BillingMarket::Create::kLostAndNot};
  EXPECT_THAT(RentWithLogin(), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(Remove(), 0);
  EXPECT_TRUE(logins_.owners.empty());
  clock_.SleepFor(absl::Minutes(10));
  EXPECT_OK(Reap(*ledger_, {{"fake", &logins_, absl::OkStatus(), {}}}, clock_, Hooks()));
  EXPECT_EQ(Remove(), 1);
}

}  // namespace
}  // namespace gpuctl
