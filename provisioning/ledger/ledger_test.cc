#include "provisioning/ledger/ledger.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>

#include "common/sqlite/sqlite.h"
#include "provisioning/ledger/lease_lock.h"
#include "provisioning/market/label.h"
#include "tests/support/matchers.h"
#include "tests/support/stepping_clock.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

LeaseTerms Terms() {
  LeaseTerms terms;
  terms.offer.provider = "fake";
  terms.offer.ref = "small";
  terms.offer.gpu_name = "H100";
  terms.offer.gpu_count = 2;
  terms.offer.region = "US";
  terms.offer.place = "fake:US-1";
  terms.offer.price_usd_per_hour = 3.0;
  terms.offer.spot = true;
  terms.quantum_s = 60;
  terms.limits = {3600, 600, 7200, 9000, 12.5};
  terms.purpose = "train";
  terms.run_id = "r-1";
  terms.run_name = "amber-fox-1";
  return terms;
}

Instance Machine(const std::string& id, double usd_per_hour = 0) {
  Instance instance;
  instance.id = id;
  instance.price_usd_per_hour = usd_per_hour;
  return instance;
}

class LedgerTest : public ::testing::Test {
 protected:
  void SetUp() override { Reopen(); }
  void Reopen() {
    ledger_.reset();
    absl::StatusOr<std::unique_ptr<Ledger>> ledger = Ledger::Open(dir_.Sub("state"), clock_);
    ASSERT_OK(ledger);
    ledger_ = *std::move(ledger);
  }
  Lease Get(const std::string& id) {
    const absl::StatusOr<Lease> lease = ledger_->Get(id);
    EXPECT_OK(lease);
    return lease.ok() ? *lease : Lease();
  }

  TempDir dir_;
  SteppingClock clock_;
  std::unique_ptr<Ledger> ledger_;
};

TEST_F(LedgerTest, TheOwnerIsMadeOnce) {
  const std::string owner = ledger_->OwnerId().value();
  EXPECT_EQ(owner.size(), 8u);
  Reopen();
  EXPECT_EQ(ledger_->OwnerId().value(), owner);
}

TEST_F(LedgerTest, IsThereOnlyWhereItWasMade) {
  const auto none = Ledger::OpenIfThere(dir_.Sub("elsewhere"), clock_);
  ASSERT_OK(none);
  EXPECT_EQ(none->get(), nullptr);
  EXPECT_FALSE(PathExists(dir_.Sub("elsewhere")));
  const auto one = Ledger::OpenIfThere(dir_.Sub("state"), clock_);
  ASSERT_OK(one);
  EXPECT_NE(one->get(), nullptr);
}

TEST_F(LedgerTest, ANewerOneIsRefused) {
  ledger_.reset();
  sqlite3* database = OpenSqlite(dir_.Sub("state/ledger.db"), "open").value();
  ASSERT_OK(SqliteExecute(database, "PRAGMA user_version = 99", "raise"));
  sqlite3_close(database);
  EXPECT_THAT(Ledger::Open(dir_.Sub("state"), clock_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("version 99")));
}

TEST_F(LedgerTest, AnIntentHoldsWhatWasAgreed) {
  const std::string id = Ledger::NewLeaseId();
  ASSERT_OK(ledger_->Intend(id, Terms()));
  Reopen();
  const Lease lease = Get(id);
  EXPECT_EQ(lease.label, FormatLabel({ledger_->OwnerId().value(), id}));
  EXPECT_EQ(lease.state, LeaseState::kIntent);
  EXPECT_EQ(lease.provider, "fake");
  EXPECT_EQ(lease.instance_id, "");
  EXPECT_EQ(lease.gpu_name, "H100");
  EXPECT_EQ(lease.gpu_count, 2);
  EXPECT_EQ(lease.region, "US");
  EXPECT_EQ(lease.place, "fake:US-1");
  EXPECT_DOUBLE_EQ(lease.price_usd_per_hour, 3.0);
  EXPECT_TRUE(lease.spot);
  EXPECT_EQ(lease.quantum_s, 60);
  EXPECT_EQ(lease.limits.time_s, 3600);
  EXPECT_EQ(lease.limits.idle_s, 600);
  EXPECT_EQ(lease.limits.salvage_s, 7200);
  EXPECT_EQ(lease.limits.contact_s, 9000);
  EXPECT_DOUBLE_EQ(lease.limits.cost_usd, 12.5);
  EXPECT_EQ(lease.purpose, "train");
  EXPECT_EQ(lease.intended_ms, ledger_->NowMs());
  ASSERT_EQ(lease.uses.size(), 1u);
  EXPECT_EQ(lease.uses[0].run_id, "r-1");
  EXPECT_EQ(lease.uses[0].run_name, "amber-fox-1");
}

TEST_F(LedgerTest, StepsComeInTheirOrder) {
  const std::string id = Ledger::NewLeaseId();
  EXPECT_THAT(ledger_->Rented(id, Machine("i-1")), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK(ledger_->Intend(id, Terms()));
  EXPECT_THAT(ledger_->Claimed(id, "n-1"), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(ledger_->Releasing(id), StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_OK(ledger_->Rented(id, Machine("i-1", 2.5)));
  ASSERT_OK(ledger_->Rented(id, Machine("i-1", 2.5)));
  EXPECT_THAT(ledger_->Rented(id, Machine("i-2")),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("rented")));
  EXPECT_THAT(ledger_->NotCreated(id, "no"), StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_OK(ledger_->Claimed(id, "n-1"));
  ASSERT_OK(ledger_->Releasing(id));
  ASSERT_OK(ledger_->Released(id, ledger_->NowMs(), "released"));
  clock_.Advance(absl::Hours(1));
  ASSERT_OK(ledger_->Released(id, ledger_->NowMs(), "again"));
  const Lease lease = Get(id);
  EXPECT_EQ(lease.state, LeaseState::kReleased);
  EXPECT_EQ(lease.how_ended, "released");
  EXPECT_EQ(lease.node_id, "n-1");
  EXPECT_DOUBLE_EQ(lease.usd_per_hour(), 2.5);
  EXPECT_LT(lease.ended_ms, ledger_->NowMs());
  EXPECT_THAT(ledger_->Rented(id, Machine("i-1")), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(LedgerTest, TheEndingIsReadFromItsWordsAsAWhole) {
  const auto ended = [this](absl::string_view how) {
    const std::string id = Ledger::NewLeaseId();
    EXPECT_OK(ledger_->Intend(id, Terms()));
    EXPECT_OK(ledger_->Rented(id, Machine(absl::StrCat("i-", id))));
    EXPECT_OK(ledger_->Released(id, ledger_->NowMs(), how));
    const Lease lease = Get(id);
    EXPECT_EQ(lease.how_ended, how);
    return lease.ending;
  };
  // These texts are in existing ledgers.
  EXPECT_EQ(ended("preempted"), LeaseEnding::kPreempted);
  EXPECT_EQ(ended("gone"), LeaseEnding::kGone);
  EXPECT_EQ(ended("ended outside gpuctl"), LeaseEnding::kOutside);
  for (const char* other : {"released", "of no use", "reaped: preempted", "gone for good", ""}) {
    EXPECT_EQ(ended(other), LeaseEnding::kOther) << other;
  }
  for (const LeaseEnding ending :
       {LeaseEnding::kPreempted, LeaseEnding::kGone, LeaseEnding::kOutside}) {
    EXPECT_EQ(ended(HowEnded(ending)), ending);
  }
  // These are the provider's words, not ours.
  const std::string id = Ledger::NewLeaseId();
  ASSERT_OK(ledger_->Intend(id, Terms()));
  ASSERT_OK(ledger_->NotCreated(id, "gone"));
  EXPECT_EQ(Get(id).ending, LeaseEnding::kOther);
}

TEST_F(LedgerTest, ListsOpenLeasesOldestFirst) {
  const std::string first = Ledger::NewLeaseId(), second = Ledger::NewLeaseId();
  ASSERT_OK(ledger_->Intend(first, Terms()));
  clock_.Advance(absl::Seconds(1));
  ASSERT_OK(ledger_->Intend(second, Terms()));
  ASSERT_OK(ledger_->NotCreated(first, "refused"));
  const auto open = ledger_->List(true);
  ASSERT_OK(open);
  ASSERT_EQ(open->size(), 1u);
  EXPECT_EQ(open->front().lease_id, second);
  EXPECT_EQ(open->front().rates.size(), 1u);
  const auto all = ledger_->List(false);
  ASSERT_OK(all);
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ(all->front().lease_id, first);
  EXPECT_EQ(ledger_->OfRun("r-1").value()->lease_id, second);
  EXPECT_FALSE(ledger_->OfRun("r-none").value().has_value());
}

TEST_F(LedgerTest, FindsWhatIsOpenAndWhatTheseRunsUsed) {
  const auto lease = [this](const std::string& run_id, bool open) {
    const std::string id = Ledger::NewLeaseId();
    LeaseTerms terms = Terms();
    terms.run_id = run_id;
    EXPECT_OK(ledger_->Intend(id, terms));
    if (!open) {
      EXPECT_OK(ledger_->NotCreated(id, "refused"));
    }
    clock_.Advance(absl::Seconds(1));
    return id;
  };
  const std::string ended = lease("r-1", false), open = lease("r-2", true);
  lease("r-3", false);
  const std::string odd = lease("r-\"4'", false);
  const auto found = [this](const std::vector<std::string>& run_ids) {
    std::vector<std::string> ids;
    const std::vector<Lease> leases = ledger_->OpenOrOf(run_ids).value();
    for (const Lease& each : leases) {
      ids.push_back(each.lease_id);
      EXPECT_EQ(each.rates.size(), 1u);
      EXPECT_EQ(each.uses.size(), 1u);
    }
    return ids;
  };
  EXPECT_THAT(found({}), ElementsAre(open));
  EXPECT_THAT(found({"r-1", "r-none"}), ElementsAre(ended, open));
  EXPECT_THAT(found({"r-\"4'", "r-2", "r-1"}), ElementsAre(ended, open, odd));
}

TEST_F(LedgerTest, BooksAreARangeBetweenWhatIsKnown) {
  LeaseTerms terms = Terms();
  terms.quantum_s = 1;
  const std::string id = Ledger::NewLeaseId();
  ASSERT_OK(ledger_->Intend(id, terms));
  clock_.Advance(absl::Minutes(2));  // the answer takes its time
  Spend spend = SpentOn(Get(id), ledger_->NowMs());
  EXPECT_DOUBLE_EQ(spend.low_usd, 0);
  EXPECT_NEAR(spend.high_usd, 3.0 * 2 / 60, 1e-9);
  ASSERT_OK(ledger_->Rented(id, Machine("i-1")));
  clock_.Advance(absl::Minutes(58));
  spend = SpentOn(Get(id), ledger_->NowMs());
  EXPECT_NEAR(spend.low_usd, 3.0 * 58 / 60, 1e-9);
  EXPECT_NEAR(spend.high_usd, 3.0, 1e-9);
  ASSERT_OK(ledger_->Releasing(id));
  const int64_t asked_ms = ledger_->NowMs();
  clock_.Advance(absl::Minutes(1));
  ASSERT_OK(ledger_->Released(id, asked_ms, "released"));
  clock_.Advance(absl::Hours(100));
  spend = SpentOn(Get(id), ledger_->NowMs());
  EXPECT_NEAR(spend.low_usd, 3.0 * 58 / 60, 1e-9);
  EXPECT_NEAR(spend.high_usd, 3.0 * 61 / 60, 1e-9);
}

TEST_F(LedgerTest, TheProvidersOwnBeginningNarrowsTheBooksToAQuantum) {
  const std::string id = Ledger::NewLeaseId();
  ASSERT_OK(ledger_->Intend(id, Terms()));
  clock_.Advance(absl::Minutes(1));
  Instance machine = Machine("i-1", 6.0);
  machine.created_ms = ledger_->NowMs();
  clock_.Advance(absl::Minutes(1));
  ASSERT_OK(ledger_->Rented(id, machine));
  clock_.Advance(absl::Seconds(30));
  const Spend spend = SpentOn(Get(id), ledger_->NowMs());  // 90 s by the provider's clock
  EXPECT_NEAR(spend.low_usd, 6.0 / 60, 1e-9);
  EXPECT_NEAR(spend.high_usd, 6.0 * 2 / 60, 1e-9);
}

TEST_F(LedgerTest, APriceChangeLiesBetweenTwoLooks) {
  LeaseTerms terms = Terms();
  terms.quantum_s = 1;
  const std::string id = Ledger::NewLeaseId();
  ASSERT_OK(ledger_->Intend(id, terms));
  ASSERT_OK(ledger_->Rented(id, Machine("i-1")));
  clock_.Advance(absl::Hours(1));
  EXPECT_FALSE(ledger_->Seen(id, ledger_->NowMs(), 3.0).value());
  clock_.Advance(absl::Hours(1));
  EXPECT_TRUE(ledger_->Seen(id, ledger_->NowMs(), 4.0).value());
  clock_.Advance(absl::Hours(1));
  EXPECT_FALSE(ledger_->Seen(id, ledger_->NowMs(), std::nullopt).value());
  Reopen();
  const Spend spend = SpentOn(Get(id), ledger_->NowMs());
  EXPECT_NEAR(spend.low_usd, 3 + 3 + 4, 1e-9);
  EXPECT_NEAR(spend.high_usd, 3 + 4 + 4, 1e-9);
  EXPECT_DOUBLE_EQ(Get(id).usd_per_hour(), 4.0);
}

TEST_F(LedgerTest, RunsThatSharedAMachineShareItsBill) {
  LeaseTerms terms = Terms();
  terms.quantum_s = 1;
  const std::string id = Ledger::NewLeaseId();
  ASSERT_OK(ledger_->Intend(id, terms));
  ASSERT_OK(ledger_->Rented(id, Machine("i-1")));
  clock_.Advance(absl::Hours(1));
  ASSERT_OK(ledger_->UsedBy(id, "r-2", "second", {}));
  ASSERT_OK(ledger_->UsedBy(id, "r-2", "second", {}));
  clock_.Advance(absl::Hours(2));
  const Lease lease = Get(id);
  EXPECT_NEAR(SpentByRun(lease, "r-1", ledger_->NowMs()).high_usd, 3.0, 1e-9);
  EXPECT_NEAR(SpentByRun(lease, "r-2", ledger_->NowMs()).high_usd, 6.0, 1e-9);
  EXPECT_DOUBLE_EQ(SpentByRun(lease, "r-3", ledger_->NowMs()).high_usd, 0);
}

TEST_F(LedgerTest, UsesBesideEachOtherEndWhenTheirRunsDo) {
  LeaseTerms terms = Terms();
  terms.run_gpus = 2;
  const std::string id = Ledger::NewLeaseId();
  ASSERT_OK(ledger_->Intend(id, terms));
  ASSERT_OK(ledger_->Rented(id, Machine("i-1")));
  clock_.Advance(absl::Hours(1));
  ASSERT_OK(ledger_->UsedBy(id, "r-2", "second", {}, 4, /*beside=*/true));
  Reopen();
  EXPECT_EQ(Get(id).uses[0].gpus, 2);
  EXPECT_EQ(Get(id).uses[1].gpus, 4);
  EXPECT_THAT(*ledger_->UsingRuns(), UnorderedElementsAre("r-1", "r-2"));
  clock_.Advance(absl::Hours(1));
  const int64_t ended_ms = ledger_->NowMs();
  ASSERT_OK(ledger_->UseEnded("r-1", ended_ms));
  ASSERT_OK(ledger_->UseEnded("r-1", ended_ms + 5000));
  ASSERT_OK(ledger_->UseEnded("r-9", ended_ms));
  EXPECT_EQ(Get(id).uses[0].until_ms, ended_ms) << "the first end that is told counts";
  EXPECT_THAT(*ledger_->UsingRuns(), UnorderedElementsAre("r-2"));
  // A run that takes the machine for itself comes when all others are over.
  clock_.Advance(absl::Hours(1));
  ASSERT_OK(ledger_->UsedBy(id, "r-3", "third", {}));
  EXPECT_EQ(Get(id).uses[1].until_ms, ledger_->NowMs());
  EXPECT_EQ(Get(id).uses[2].gpus, LeaseUse::kWhole);
  EXPECT_THAT(*ledger_->UsingRuns(), UnorderedElementsAre("r-3"));
}

TEST_F(LedgerTest, EachUseKeepsTheLimitsThatWereAgreedForIt) {
  const std::string id = Ledger::NewLeaseId();
  ASSERT_OK(ledger_->Intend(id, Terms()));
  ASSERT_OK(ledger_->Rented(id, Machine("i-1")));
  LeaseLimits more = Terms().limits;
  more.idle_s = 3600;
  more.cost_usd = 40;
  ASSERT_OK(ledger_->UsedBy(id, "r-2", "second", more, 1, /*beside=*/true));
  Reopen();
  const Lease lease = Get(id);
  EXPECT_EQ(lease.limits, more);
  EXPECT_EQ(LimitsFor(lease, "r-1"), Terms().limits);
  EXPECT_EQ(LimitsFor(lease, "r-2"), more);
  EXPECT_EQ(LimitsFor(lease, "r-9"), more) << "what is not known is as the machine has it";
}

TEST_F(LedgerTest, AUseThatDidNotBeginIsTakenBack) {
  const std::string id = Ledger::NewLeaseId();
  ASSERT_OK(ledger_->Intend(id, Terms()));
  ASSERT_OK(ledger_->Rented(id, Machine("i-1")));
  LeaseLimits more = Terms().limits;
  more.idle_s = 3600;
  ASSERT_OK(ledger_->UsedBy(id, "r-2", "second", more));
  ASSERT_OK(ledger_->NotUsedBy(id, "r-2", Terms().limits));
  Reopen();
  const Lease lease = Get(id);
  ASSERT_EQ(lease.uses.size(), 1u);
  EXPECT_EQ(lease.uses[0].run_id, "r-1");
  EXPECT_EQ(lease.limits, Terms().limits);
  EXPECT_FALSE(ledger_->OfRun("r-2")->has_value());
  EXPECT_THAT(*ledger_->UsingRuns(), ::testing::IsEmpty());
}

TEST_F(LedgerTest, ARunIsNamedOnceItIsInTheListOfRuns) {
  const std::string id = Ledger::NewLeaseId();
  ASSERT_OK(ledger_->Intend(id, Terms()));
  ASSERT_OK(ledger_->UsedBy(id, "r-2", "second", {}));
  ASSERT_OK(ledger_->NameRun("r-2", "second-4"));
  ASSERT_OK(ledger_->NameRun("r-9", "nobody-1"));
  Reopen();
  ASSERT_EQ(Get(id).uses.size(), 2u);
  EXPECT_EQ(Get(id).uses[0].run_name, "amber-fox-1");
  EXPECT_EQ(Get(id).uses[1].run_name, "second-4");
}

TEST_F(LedgerTest, WhatWasRentedCostsAUnitThoughTheClockWentBack) {
  const std::string id = Ledger::NewLeaseId();
  LeaseTerms terms = Terms();
  terms.quantum_s = 60;
  ASSERT_OK(ledger_->Intend(id, terms));
  ASSERT_OK(ledger_->Rented(id, Machine("i-1", 6.0)));
  const Lease lease = Get(id);
  const Spend spend = SpentOn(lease, lease.intended_ms - 300'000);
  EXPECT_DOUBLE_EQ(spend.low_usd, 0);
  EXPECT_NEAR(spend.high_usd, 6.0 / 60, 1e-9);
}

TEST_F(LedgerTest, WhatWasNeverCreatedCostsNothing) {
  const std::string id = Ledger::NewLeaseId();
  ASSERT_OK(ledger_->Intend(id, Terms()));
  ASSERT_OK(ledger_->NotCreated(id, "refused"));
  clock_.Advance(absl::Hours(1));
  EXPECT_DOUBLE_EQ(SpentOn(Get(id), ledger_->NowMs()).high_usd, 0);
}

TEST_F(LedgerTest, ExclusionsExpire) {
  ASSERT_OK(ledger_->Exclude("fake:m-1", absl::Hours(1), "no CUDA"));
  ASSERT_OK(ledger_->Exclude("fake:m-2", absl::Hours(3), "no ssh"));
  clock_.Advance(absl::Hours(2));
  const auto places = ledger_->Excluded();
  ASSERT_OK(places);
  ASSERT_EQ(places->size(), 1u);
  EXPECT_EQ(places->front().place, "fake:m-2");
  EXPECT_EQ(places->front().reason, "no ssh");
}

TEST_F(LedgerTest, AListingReplacesTheOneBefore) {
  ListedInstance listed;
  listed.instance = Machine("i-1", 2.0);
  listed.instance.label = "theirs";
  listed.holder = Holder::kLeak;
  listed.why = "nobody wants it";
  ASSERT_OK(ledger_->StoreListing({"fake", 1000, {listed}}));
  ASSERT_OK(ledger_->StoreListing({"other", 1500, {}}));
  Reopen();
  auto listings = ledger_->LastListings();
  ASSERT_OK(listings);
  ASSERT_EQ(listings->size(), 2u);
  ASSERT_EQ((*listings)[0].instances.size(), 1u);
  EXPECT_EQ((*listings)[0].instances[0].why, "nobody wants it");
  EXPECT_EQ((*listings)[0].instances[0].holder, Holder::kLeak);
  EXPECT_EQ((*listings)[1].provider, "other");
  ASSERT_OK(ledger_->StoreListing({"fake", 2000, {}}));
  listings = ledger_->LastListings();
  ASSERT_OK(listings);
  EXPECT_EQ((*listings)[0].listed_ms, 2000);
  EXPECT_TRUE((*listings)[0].instances.empty());
}

TEST_F(LedgerTest, KeepsTheHostKeyThatAMachineGets) {
  LeaseTerms terms;
  terms.offer.provider = "lambda";
  terms.host_key = "ssh-ed25519 AAAA";
  ASSERT_OK(ledger_->Intend("l-keyed", terms));
  terms.host_key.clear();
  ASSERT_OK(ledger_->Intend("l-plain", terms));
  EXPECT_EQ(Get("l-keyed").host_key, "ssh-ed25519 AAAA");
  EXPECT_EQ(Get("l-plain").host_key, "");
  std::map<std::string, std::string> keys;
  const std::vector<Lease> open = ledger_->List(/*open_only=*/true).value();
  for (const Lease& lease : open) keys[lease.lease_id] = lease.host_key;
  EXPECT_EQ(keys["l-keyed"], "ssh-ed25519 AAAA");
  EXPECT_EQ(keys["l-plain"], "");
}

// A ledger of an older gpuctl has no host keys, and its leases are there.
TEST_F(LedgerTest, AnOlderLedgerGetsTheTableOfHostKeys) {
  LeaseTerms terms;
  terms.offer.provider = "lambda";
  ASSERT_OK(ledger_->Intend("l-old", terms));
  ledger_.reset();
  {
    const auto database = OpenSqlite(dir_.Sub("state/ledger.db"), "make it older");
    ASSERT_OK(database);
    ASSERT_OK(SqliteExecute(*database, "DROP TABLE host_keys", "make it older"));
    sqlite3_close(*database);
  }
  Reopen();
  EXPECT_EQ(Get("l-old").host_key, "");
  terms.host_key = "ssh-ed25519 AAAA";
  ASSERT_OK(ledger_->Intend("l-new", terms));
  EXPECT_EQ(Get("l-new").host_key, "ssh-ed25519 AAAA");
}

TEST_F(LedgerTest, KeepsThePriceRisesOfWhatBills) {
  const std::string id = Ledger::NewLeaseId();
  const std::string provider = Terms().offer.provider;
  ASSERT_OK(ledger_->Intend(id, Terms()));
  ASSERT_OK(ledger_->Rented(id, Machine("m-1")));
  PriceRise rise;
  rise.id = "9";
  rise.instance_id = "m-1";
  rise.before_usd_per_hour = 0.3;
  rise.after_usd_per_hour = 0.6;
  rise.from_ms = 1'700'000'000'000;
  rise.also = "upload";
  PriceRise foreign = rise;
  foreign.instance_id = "m-2";
  ASSERT_OK(ledger_->StorePriceRises(provider, {rise, foreign}));
  ASSERT_OK(ledger_->StorePriceRises("another", {rise}));
  Reopen();
  auto stored = ledger_->PriceRises();
  ASSERT_OK(stored);
  ASSERT_EQ(stored->size(), 1u);
  EXPECT_EQ(stored->front().lease.lease_id, id);
  EXPECT_EQ(stored->front().rise.id, "9");
  EXPECT_EQ(stored->front().rise.after_usd_per_hour, 0.6);
  EXPECT_EQ(stored->front().rise.from_ms, rise.from_ms);
  EXPECT_EQ(stored->front().rise.also, "upload");
  // Rises that no longer wait are deleted. Where none waited, nothing is written.
  ASSERT_OK(ledger_->StorePriceRises(provider, {}));
  stored = ledger_->PriceRises();
  ASSERT_OK(stored);
  EXPECT_TRUE(stored->empty());
  ledger_->SetWriteHook(
      [](absl::string_view, bool) { return absl::ResourceExhaustedError("disk full"); });
  EXPECT_OK(ledger_->StorePriceRises(provider, {}));
  EXPECT_FALSE(ledger_->StorePriceRises(provider, {rise}).ok());
}

TEST_F(LedgerTest, AFailedWriteChangesNothing) {
  const std::string id = Ledger::NewLeaseId();
  ledger_->SetWriteHook([](absl::string_view, bool done) {
    return done ? absl::OkStatus() : absl::ResourceExhaustedError("disk full");
  });
  EXPECT_THAT(ledger_->Intend(id, Terms()), StatusIs(absl::StatusCode::kResourceExhausted));
  ledger_->SetWriteHook({});
  EXPECT_THAT(ledger_->Get(id), StatusIs(absl::StatusCode::kNotFound));
}

// The state directory is left as by a killed process.
TEST_F(LedgerTest, WhatWasWrittenSurvivesTheProcess) {
  const std::string id = Ledger::NewLeaseId();
  ledger_.reset();
  const pid_t child = fork();
  if (child == 0) {
    const auto ledger = Ledger::Open(dir_.Sub("state"), clock_);
    const auto lock = LeaseLock::Take(dir_.Sub("state"), id, clock_);
    if (lock.ok() && ledger.ok() && (*ledger)->Intend(id, Terms()).ok()) raise(SIGKILL);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  Reopen();
  EXPECT_EQ(Get(id).state, LeaseState::kIntent);
  EXPECT_FALSE(LeaseLock::IsHeld(dir_.Sub("state"), id).value());
}

TEST_F(LedgerTest, ProcessesRaceOnOneDatabase) {
  constexpr int kProcesses = 4, kLeases = 10;
  ledger_.reset();
  ASSERT_OK(RemoveTree(dir_.Sub("state")));  // making it is part of the race
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    const auto ledger = Ledger::Open(dir_.Sub("state"), clock_);
    bool good = ledger.ok();
    for (int n = 0; good && n < kLeases; ++n) {
      const std::string id = Ledger::NewLeaseId();
      good = (*ledger)->Intend(id, Terms()).ok() &&
             (*ledger)->Rented(id, Machine(absl::StrCat(i, "-", n))).ok() &&
             (*ledger)->Releasing(id).ok() &&
             (*ledger)->Released(id, (*ledger)->NowMs(), "released").ok();
    }
    _exit(good ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  Reopen();
  const std::string owner = ledger_->OwnerId().value();
  const auto leases = ledger_->List(false);
  ASSERT_OK(leases);
  EXPECT_EQ(leases->size(), static_cast<size_t>(kProcesses * kLeases));
  for (const Lease& lease : *leases) {
    EXPECT_EQ(lease.state, LeaseState::kReleased);
    EXPECT_EQ(ParseLabel(lease.label)->owner, owner);
  }
}

TEST_F(LedgerTest, ALockIsSeenAndRefused) {
  const std::string state = dir_.Sub("state");
  EXPECT_FALSE(LeaseLock::IsHeld(state, "00").value());
  absl::StatusOr<LeaseLock> lock = LeaseLock::Take(state, "00", clock_);
  ASSERT_OK(lock);
  EXPECT_TRUE(LeaseLock::IsHeld(state, "00").value());
  EXPECT_THAT(LeaseLock::Take(state, "00", clock_), StatusIs(absl::StatusCode::kUnavailable));
  lock->Drop();
  EXPECT_OK(LeaseLock::Take(state, "00", clock_));
}

// A process that has rented many passes each on to the process that uses it.
TEST_F(LedgerTest, ALockIsPassedOnByItsDescriptor) {
  const std::string state = dir_.Sub("state");
  LeaseLock lock = LeaseLock::Take(state, "00", clock_).value();
  const LeaseLock other = LeaseLock::Take(state, "01", clock_).value();
  const auto passed = [](const LeaseLock& one) {
    return UniqueFd(fcntl(one.fd(), F_DUPFD_CLOEXEC, 0));
  };
  EXPECT_THAT(LeaseLock::TakeOver(state, "00", passed(other)),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(LeaseLock::TakeOver(state, "00", UniqueFd()),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  {
    const auto taken = LeaseLock::TakeOver(state, "00", passed(lock));
    ASSERT_OK(taken);
    lock.Drop();
    EXPECT_TRUE(LeaseLock::IsHeld(state, "00").value());
  }
  EXPECT_FALSE(LeaseLock::IsHeld(state, "00").value());
}

TEST_F(LedgerTest, TrafficIsChargedToTheRunThatMovedIt) {
  const std::string id = Ledger::NewLeaseId();
  LeaseTerms terms = Terms();
  terms.offer.upload_usd_per_gb = 0.5;
  terms.offer.download_usd_per_gb = 0.1;
  ASSERT_OK(ledger_->Intend(id, terms));
  ASSERT_OK(ledger_->Rented(id, Machine("i-1")));
  const int64_t begin_ms = ledger_->NowMs();
  constexpr int64_t kGb = 1'000'000'000;
  ASSERT_OK(ledger_->NoteTraffic(id, 2 * kGb, 10 * kGb));
  ASSERT_OK(ledger_->NoteTraffic(id, 2 * kGb, 10 * kGb));
  EXPECT_NEAR(KnownTraffic(Get(id)).usd, 2, 1e-9) << "the same count costs once";
  clock_.Advance(absl::Hours(2));
  ASSERT_OK(ledger_->UsedBy(id, "r-2", "blue-owl-2", terms.limits));
  ASSERT_OK(ledger_->SetTrafficPrices(id, 1, 0.1));
  ASSERT_OK(ledger_->NoteTraffic(id, 5 * kGb, 10 * kGb));
  Reopen();
  Lease lease = Get(id);
  EXPECT_EQ(lease.upload_usd_per_gb, 1);
  EXPECT_EQ(lease.sent_count, 5 * kGb);
  const int64_t now_ms = ledger_->NowMs();
  Lease without = lease;
  without.traffic.clear();
  EXPECT_NEAR(SpentOn(lease, now_ms).low_usd - SpentOn(without, now_ms).low_usd, 5, 1e-9);
  EXPECT_NEAR(SpentOn(lease, now_ms).high_usd - SpentOn(without, now_ms).high_usd, 5, 1e-9);
  const auto part = [&](const char* run) {
    return SpentByRun(lease, run, now_ms).high_usd - SpentByRun(without, run, now_ms).high_usd;
  };
  EXPECT_NEAR(part("r-1"), 2, 1e-9);
  EXPECT_NEAR(part("r-2"), 3, 1e-9);
  const int64_t middle_ms = begin_ms + 3'600'000;
  EXPECT_NEAR(SpentBetween(lease, 0, middle_ms, now_ms).low_usd -
                  SpentBetween(without, 0, middle_ms, now_ms).low_usd,
              2, 1e-9);
  // A node that lost its count began at 0; one that lies about it harms only itself.
  ASSERT_OK(ledger_->NoteTraffic(id, kGb, 10 * kGb));
  EXPECT_NEAR(KnownTraffic(Get(id)).usd, 6, 1e-9);
  ASSERT_OK(ledger_->NoteTraffic(id, -5, -5));
  EXPECT_NEAR(KnownTraffic(Get(id)).usd, 6, 1e-9);
  EXPECT_THAT(ledger_->SetTrafficPrices(id, -1, 0), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ledger_->NoteTraffic("ffffffffffff", 1, 1), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(LedgerTest, WhatAMarketChargesForTrafficCountsWhereItIsMore) {
  const std::string id = Ledger::NewLeaseId();
  LeaseTerms terms = Terms();
  terms.offer.download_usd_per_gb = 0.1;
  ASSERT_OK(ledger_->Intend(id, terms));
  ASSERT_OK(ledger_->Rented(id, Machine("i-1")));
  const int64_t begin_ms = ledger_->NowMs();
  constexpr int64_t kGb = 1'000'000'000;
  // The image, before the agent counted anything.
  ASSERT_OK(ledger_->NoteTrafficCharge(id, 1.5));
  EXPECT_NEAR(KnownTraffic(Get(id)).usd, 1.5, 1e-9);
  clock_.Advance(absl::Hours(1));
  ASSERT_OK(ledger_->UsedBy(id, "r-2", "blue-owl-2", terms.limits));
  ASSERT_OK(ledger_->NoteTraffic(id, 0, 10 * kGb));
  EXPECT_NEAR(KnownTraffic(Get(id)).usd, 1.5, 1e-9) << "it may be part of what was charged";
  ASSERT_OK(ledger_->NoteTrafficCharge(id, 2.5));
  ASSERT_OK(ledger_->NoteTrafficCharge(id, 0.5));  // an older answer
  Reopen();
  const Lease lease = Get(id);
  EXPECT_NEAR(KnownTraffic(lease).usd, 2.5, 1e-9);
  EXPECT_EQ(KnownTraffic(lease).received_bytes, 10 * kGb);
  // What nobody counted belongs to the first run and to the beginning.
  Lease without = lease;
  without.traffic.clear();
  without.traffic_charged_usd = 0;
  const int64_t now_ms = ledger_->NowMs();
  const auto part = [&](const char* run) {
    return SpentByRun(lease, run, now_ms).low_usd - SpentByRun(without, run, now_ms).low_usd;
  };
  EXPECT_NEAR(part("r-1"), 1.5, 1e-9);
  EXPECT_NEAR(part("r-2"), 1, 1e-9);
  const int64_t middle_ms = begin_ms + 1'800'000;
  const auto between = [&](int64_t from_ms, int64_t to_ms) {
    return SpentBetween(lease, from_ms, to_ms, now_ms).low_usd -
           SpentBetween(without, from_ms, to_ms, now_ms).low_usd;
  };
  EXPECT_NEAR(between(begin_ms - 1, middle_ms), 1.5, 1e-9);
  EXPECT_NEAR(between(middle_ms, now_ms + 1), 1, 1e-9);
  // A count that is more than the charge counts.
  ASSERT_OK(ledger_->NoteTraffic(id, 0, 40 * kGb));
  EXPECT_NEAR(KnownTraffic(Get(id)).usd, 4, 1e-9);
  EXPECT_FALSE(ledger_->NoteTrafficCharge(id, std::nan("")).ok());
  EXPECT_THAT(ledger_->NoteTrafficCharge("ffffffffffff", 1), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(LedgerTest, AStoppedMachineOfWhichNothingBillsCostsNothing) {
  LeaseTerms terms = Terms();
  terms.quantum_s = 1;
  const std::string id = Ledger::NewLeaseId();
  ASSERT_OK(ledger_->Intend(id, terms));
  ASSERT_OK(ledger_->Rented(id, Machine("i-1", 3.0)));
  clock_.Advance(absl::Hours(1));
  Instance stopped = Machine("i-1");
  stopped.state = Instance::State::kFailed;
  // A price that is not told is no price of 0.
  EXPECT_FALSE(ledger_->Look(id, ledger_->NowMs(), stopped).value());
  EXPECT_FALSE(Get(id).BillsNothing());
  stopped.bills_nothing = true;
  EXPECT_TRUE(ledger_->Look(id, ledger_->NowMs(), stopped).value());
  EXPECT_FALSE(ledger_->Look(id, ledger_->NowMs(), stopped).value());
  clock_.Advance(absl::Hours(10));
  Reopen();
  EXPECT_TRUE(Get(id).BillsNothing());
  EXPECT_NEAR(SpentOn(Get(id), ledger_->NowMs()).high_usd, 3, 1e-9);
  // It is started again.
  EXPECT_TRUE(ledger_->Look(id, ledger_->NowMs(), Machine("i-1", 3.0)).value());
  EXPECT_FALSE(Get(id).BillsNothing());
  clock_.Advance(absl::Hours(1));
  EXPECT_NEAR(SpentOn(Get(id), ledger_->NowMs()).low_usd, 6, 1e-9);
}

TEST_F(LedgerTest, WhatItsHostTookBackHasItsNewPriceFromThenOn) {
  LeaseTerms terms = Terms();
  terms.quantum_s = 1;
  const std::string id = Ledger::NewLeaseId();
  ASSERT_OK(ledger_->Intend(id, terms));
  ASSERT_OK(ledger_->Rented(id, Machine("i-1", 3.0)));
  Instance machine = Machine("i-1", 3.0);
  machine.state = Instance::State::kRunning;
  machine.ends_ms = ledger_->NowMs() + 2 * 3'600'000;
  EXPECT_FALSE(ledger_->Look(id, ledger_->NowMs(), machine).value());
  Reopen();
  EXPECT_EQ(Get(id).ends_ms, machine.ends_ms);
  // An answer that cannot tell the end does not take it away; one that tells that there is none
  // does.
  Instance silent = machine;
  silent.ends_ms = 0;
  silent.tells_end = false;
  ASSERT_OK(ledger_->Look(id, ledger_->NowMs(), silent));
  EXPECT_EQ(Get(id).ends_ms, machine.ends_ms);
  silent.tells_end = true;
  ASSERT_OK(ledger_->Look(id, ledger_->NowMs(), silent));
  EXPECT_EQ(Get(id).ends_ms, 0);
  ASSERT_OK(ledger_->Look(id, ledger_->NowMs(), machine));
  // Nobody looks for ten hours.
  clock_.Advance(absl::Hours(10));
  machine.state = Instance::State::kFailed;
  machine.price_usd_per_hour = 0.1;
  EXPECT_TRUE(ledger_->Look(id, ledger_->NowMs(), machine).value());
  const Spend spend = SpentOn(Get(id), ledger_->NowMs());
  EXPECT_NEAR(spend.high_usd, 2 * 3.0 + 8 * 0.1, 1e-9);
  EXPECT_NEAR(spend.low_usd, 10 * 0.1, 1e-9) << "it may have stopped earlier";
}

}  // namespace
}  // namespace gpuctl
