// Tests of instances and reap with a market in memory: their output and their exit codes.
#include "client/verbs/money_verbs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"
#include "client/terminal/console.h"
#include "provisioning/market/label.h"
#include "tests/support/billing_market.h"
#include "tests/support/matchers.h"
#include "tests/support/stepping_clock.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class RentedVerbs : public ::testing::Test {
 protected:
  RentedVerbs() : account_(std::make_shared<BillingAccount>(clock_)), context_(clock_) {
    auto market = std::make_unique<BillingMarket>("fake", account_, clock_);
    market_ = market.get();
    std::vector<Market> markets;
    markets.push_back({"fake", std::move(market), "test", nullptr});
    holdings_.emplace(context_, Ledger::Open(dir_.Sub("state"), clock_).value(),
                      std::move(markets));
  }
  Lease RentAndClaim() {
    LeaseTerms terms;
    terms.offer = market_->AnOffer();
    terms.run_id = "r-1";
    terms.run_name = "amber-fox-1";
    const auto rental = Rent(holdings_->ledger(), *market_, terms, {}, clock_, {});
    EXPECT_OK(rental);
    EXPECT_OK(holdings_->ledger().Claimed(rental->lease.lease_id, "n-1"));
    return rental->lease;
  }
  // Rents as a launch that was killed before the node took over.
  void Leak() {
    LeaseTerms terms;
    terms.offer = market_->AnOffer();
    EXPECT_OK(Rent(holdings_->ledger(), *market_, terms, {}, clock_, {}));
  }
  // A machine of ours that the ledger does not have.
  std::string Lost() {
    return account_->Add(FormatLabel({holdings_->ledger().OwnerId().value(), "0123456789ab"}));
  }
  // Runs `verb`. Returns its stdout; its exit code goes to code_.
  template <typename Verb>
  std::string Run(Verb verb) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const absl::StatusOr<int> code = verb();
    errors_ = ::testing::internal::GetCapturedStderr();
    const std::string out = ::testing::internal::GetCapturedStdout();
    EXPECT_OK(code);
    code_ = code.value_or(-1);
    return out;
  }
  std::string Instances() {
    return Run([this] { return ShowInstances(context_, *holdings_, nullptr); });
  }
  std::string ReapWith(const ReapFlags& flags) {
    return Run([this, &flags] { return ReapLeaks(context_, *holdings_, nullptr, flags); });
  }

  TempDir dir_;
  SteppingClock clock_;
  std::shared_ptr<BillingAccount> account_;
  CommandContext context_;
  BillingMarket* market_ = nullptr;
  std::optional<Holdings> holdings_;
  std::string errors_;
  int code_ = -1;
};

TEST_F(RentedVerbs, InstancesShowsWhoseEverythingIs) {
  const Lease lease = RentAndClaim();
  account_->Add("my-pod\x1b[2J");
  clock_.Advance(absl::Hours(1));
  EXPECT_THAT(Instances(), Not(HasSubstr(lease.label)));
  context_.format = OutputFormat::kWide;
  const std::string table = Instances();
  EXPECT_EQ(code_, kExitOk);
  EXPECT_THAT(table, HasSubstr(lease.label));
  EXPECT_THAT(table, HasSubstr("my-pod"));
  EXPECT_THAT(table, HasSubstr("amber-fox-1"));
  EXPECT_THAT(table, HasSubstr("$2.00"));
  EXPECT_THAT(table, HasSubstr("not-gpuctl"));
  EXPECT_THAT(table, Not(HasSubstr("\x1b")));
}

TEST_F(RentedVerbs, QuietInstancesPrintsWhatDownTakes) {
  const Lease lease = RentAndClaim();
  const auto quiet = [this] { return ShowInstances(context_, *holdings_, nullptr, true); };
  EXPECT_EQ(Run(quiet), absl::StrCat(lease.provider, "/", lease.instance_id, "\n"));
  Leak();
  Run(quiet);
  EXPECT_EQ(code_, kExitLeak);
}

TEST_F(RentedVerbs, InstancesShowsALeakInRedAndExitsWithItsCode) {
  Leak();
  context_.terminal.colour = true;
  EXPECT_THAT(Instances(), HasSubstr("\x1b[31mleak: its launch ended before the node took over"));
  EXPECT_EQ(code_, kExitLeak);
  EXPECT_THAT(errors_, HasSubstr("gpuctl reap"));
}

TEST_F(RentedVerbs, InstancesNamesAMarketThatIsUnknown) {
  const Lease lease = RentAndClaim();
  market_->list_answers = {absl::UnavailableError("503")};
  Instances();
  EXPECT_EQ(code_, kExitProvider);
  EXPECT_THAT(errors_, HasSubstr("it is not known what is rented at fake: 503"));
  EXPECT_THAT(errors_, HasSubstr(lease.instance_id));
  EXPECT_THAT(errors_, Not(HasSubstr("nothing bills")));
}

TEST_F(RentedVerbs, InstancesAsJson) {
  RentAndClaim();
  Leak();
  context_.format = OutputFormat::kJson;
  const auto json = nlohmann::json::parse(Instances(), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["schema_version"], 1);
  ASSERT_EQ(json["instances"].size(), 2u);
  EXPECT_EQ(json["instances"][0]["whose"], "ours");
  EXPECT_EQ(json["instances"][0]["lease"]["runs"][0]["name"], "amber-fox-1");
  EXPECT_EQ(json["instances"][1]["whose"], "leak");
  EXPECT_TRUE(json["unknown"].empty());
  EXPECT_EQ(code_, kExitLeak);
}

TEST_F(RentedVerbs, ADryReapEndsNothing) {
  Leak();
  ReapFlags flags;
  flags.dry_run = true;
  ReapWith(flags);
  EXPECT_EQ(code_, kExitLeak);
  EXPECT_THAT(errors_, HasSubstr("its launch ended before the node took over"));
  EXPECT_EQ(market_->terminates, 0);
}

TEST_F(RentedVerbs, WhatTheLedgerLostIsToldAndNotEnded) {
  const std::string id = Lost();
  Instances();
  EXPECT_EQ(code_, kExitLeak);
  ReapFlags flags;
  flags.yes = true;
  ReapWith(flags);
  EXPECT_EQ(code_, kExitLeak);
  EXPECT_THAT(errors_, HasSubstr(absl::StrCat("gpuctl down fake/", id)));
  EXPECT_EQ(market_->terminates, 0);
}

TEST_F(RentedVerbs, WhatTheMarketCallsOutOfOrderIsRedAndEndsAfterItsSalvage) {
  for (const auto state : {Instance::State::kFailed, Instance::State::kSilent}) {
    const Lease lease = RentAndClaim();
    LeaseLimits limits;
    limits.salvage_s = 7200;
    ASSERT_OK(holdings_->ledger().UsedBy(lease.lease_id, "r-1", "amber-fox-1", limits));
    account_->SetState(lease.instance_id, state, "unhealthy");
    Instances();
    EXPECT_EQ(code_, kExitLeak);
    EXPECT_THAT(errors_, HasSubstr("amber-fox-1 is unhealthy"));
    ReapFlags flags;
    flags.yes = true;
    flags.wait = false;
    clock_.Advance(absl::Hours(1));
    ReapWith(flags);
    EXPECT_EQ(code_, kExitLeak);
    EXPECT_THAT(account_->Billing(), ElementsAre(lease.label));
    // It came back in between, so its time begins again.
    account_->SetState(lease.instance_id, Instance::State::kRunning, "running");
    Instances();
    EXPECT_EQ(code_, kExitOk);
    account_->SetState(lease.instance_id, state, "unhealthy");
    clock_.Advance(absl::Hours(1));
    Instances();
    clock_.Advance(absl::Hours(1.5));
    ReapWith(flags);
    EXPECT_THAT(account_->Billing(), ElementsAre(lease.label));
    clock_.Advance(absl::Hours(1));
    ReapWith(flags);
    EXPECT_EQ(code_, kExitOk);
    EXPECT_THAT(account_->Billing(), IsEmpty());
  }
}

TEST_F(RentedVerbs, AReapEndsLeaksAndSaysWhatTheyCost) {
  const Lease lease = RentAndClaim();
  Leak();
  clock_.Advance(absl::Hours(1));
  ReapFlags flags;
  flags.yes = true;
  ReapWith(flags);
  EXPECT_EQ(code_, kExitOk);
  EXPECT_THAT(errors_, HasSubstr("ended; it cost $2.0"));
  EXPECT_THAT(account_->Billing(), ElementsAre(lease.label));
  ReapWith(flags);
  EXPECT_EQ(code_, kExitOk);
  EXPECT_THAT(errors_, HasSubstr("no leaks"));
}

TEST_F(RentedVerbs, AReapThatFailsIsLoud) {
  Leak();
  market_->ignored_terminates = 1000;
  ReapFlags flags;
  flags.yes = true;
  ReapWith(flags);
  EXPECT_EQ(code_, kExitLeak);
  EXPECT_THAT(errors_, HasSubstr("NOT ended"));
}

TEST_F(RentedVerbs, AReapThatDoesNotWaitSaysWhatIsNotSettled) {
  market_->creates = {BillingMarket::Create::kLostAndNot};
  LeaseTerms terms;
  terms.offer = market_->AnOffer();
  EXPECT_FALSE(Rent(holdings_->ledger(), *market_, terms, {}, clock_, {}).ok());
  ReapFlags flags;
  flags.yes = true;
  flags.wait = false;
  ReapWith(flags);
  EXPECT_EQ(code_, kExitTimeout);
  flags.wait = true;
  ReapWith(flags);
  EXPECT_EQ(code_, kExitOk);
  EXPECT_THAT(holdings_->ledger().List(/*open_only=*/true).value(), IsEmpty());
}

}  // namespace
}  // namespace gpuctl
