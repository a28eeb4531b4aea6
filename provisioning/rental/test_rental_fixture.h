// A ledger, a market and a clock that advances when somebody waits.
#ifndef GPUCTL_PROVISIONING_RENTAL_TEST_RENTAL_FIXTURE_H_
#define GPUCTL_PROVISIONING_RENTAL_TEST_RENTAL_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "provisioning/ledger/ledger.h"
#include "provisioning/rental/reconcile.h"
#include "provisioning/rental/rental.h"
#include "tests/support/billing_market.h"
#include "tests/support/matchers.h"
#include "tests/support/stepping_clock.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {

class RentalFixture : public ::testing::Test {
 protected:
  RentalFixture()
      : account_(std::make_shared<BillingAccount>(clock_)), market_("fake", account_, clock_) {}
  void SetUp() override { ledger_ = OpenLedger("state"); }

  std::unique_ptr<Ledger> OpenLedger(const std::string& name) {
    absl::StatusOr<std::unique_ptr<Ledger>> ledger = Ledger::Open(dir_.Sub(name), clock_);
    EXPECT_OK(ledger);
    return ledger.ok() ? *std::move(ledger) : nullptr;
  }
  LeaseTerms Terms() {
    LeaseTerms terms;
    terms.offer = market_.AnOffer();
    terms.run_id = "r-1";
    terms.run_name = "amber-fox-1";
    return terms;
  }
  RentalHooks Hooks() {
    RentalHooks hooks;
    hooks.progress = [this](absl::string_view line) { told_.push_back(std::string(line)); };
    hooks.cancelled = [this] { return cancelled_; };
    return hooks;
  }
  absl::StatusOr<Rental> RentOne() { return Rent(*ledger_, market_, Terms(), {}, clock_, Hooks()); }
  // Rents and claims, as a successful launch does.
  Lease RentAndClaim() {
    absl::StatusOr<Rental> rental = RentOne();
    EXPECT_OK(rental);
    if (!rental.ok()) return {};
    EXPECT_OK(ledger_->Claimed(rental->lease.lease_id, "n-1"));
    return ledger_->Get(rental->lease.lease_id).value();
  }
  // Rents as a launch that was killed before the node took over. Returns the label.
  std::string LeaveALeak() {
    absl::StatusOr<Rental> rental = RentOne();
    EXPECT_OK(rental);
    return rental.ok() ? rental->lease.label : "";
  }
  std::vector<ReconcileMarket> Markets() { return {{"fake", &market_, absl::OkStatus()}}; }
  Reconciliation ReconcileNow() {
    absl::StatusOr<Reconciliation> result = Reconcile(*ledger_, Markets(), clock_);
    EXPECT_OK(result);
    return result.ok() ? *std::move(result) : Reconciliation();
  }
  ReapReport ReapNow(bool wait = true) {
    absl::StatusOr<ReapReport> report = Reap(*ledger_, Markets(), clock_, Hooks(), {{}, wait, {}});
    EXPECT_OK(report);
    return report.ok() ? *std::move(report) : ReapReport();
  }
  std::vector<Lease> Leases(bool open_only = false) { return ledger_->List(open_only).value(); }

  TempDir dir_;
  SteppingClock clock_;
  std::shared_ptr<BillingAccount> account_;
  BillingMarket market_;
  std::unique_ptr<Ledger> ledger_;
  std::vector<std::string> told_;
  bool cancelled_ = false;
};

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_RENTAL_TEST_RENTAL_FIXTURE_H_
