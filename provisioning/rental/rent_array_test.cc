#include "provisioning/rental/rent_array.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "provisioning/market/label.h"
#include "provisioning/rental/test_rental_fixture.h"

namespace gpuctl {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A market that makes all machines of an array, or none.
class ArrayMarket : public BillingMarket {
 public:
  using BillingMarket::BillingMarket;
  absl::StatusOr<int> MostInArray() override { return kMostTasks; }
  absl::StatusOr<std::vector<Instance>> RentArray(const Offer& offer, const RentOptions& options,
                                                  absl::string_view label, int count,
                                                  int at_once) override {
    (void)options;
    ++arrays;
    limit = at_once;
    if (before) before();
    if (!refusal.ok()) return refusal;
    std::vector<Instance> made;
    for (int task = 0; task < count; ++task) {
      const absl::StatusOr<Instance> one =
          Rent(offer, {}, FormatLabel(TaskLabel(*ParseLabel(label), task)));
      if (!one.ok()) return one.status();
      made.push_back(*one);
    }
    if (lose_answer) return absl::DeadlineExceededError("the connection broke");
    return made;
  }
  std::function<void()> before;  // called before anything is made
  bool lose_answer = false;
  int arrays = 0, limit = -1;
};

class RentArrayTest : public RentalFixture {
 protected:
  RentArrayTest() : tasks_("fake", account_, clock_) {}
  absl::StatusOr<std::vector<Rental>> RentTasks(int count, int at_once = 0) {
    LeaseTerms terms = Terms();
    terms.run_id = terms.run_name = "";
    return RentArray(*ledger_, tasks_, terms, count, at_once, {}, clock_, Hooks());
  }
  ReapReport ReapTasks() {
    const std::vector<ReconcileMarket> markets = {{"fake", &tasks_, absl::OkStatus()}};
    absl::StatusOr<ReapReport> report = Reap(*ledger_, markets, clock_, Hooks(), {{}, true, {}});
    EXPECT_OK(report);
    return report.ok() ? *std::move(report) : ReapReport();
  }
  std::set<LeaseState> States() {
    std::set<LeaseState> states;
    for (const Lease& lease : Leases()) states.insert(lease.state);
    return states;
  }
  ArrayMarket tasks_;
};

TEST_F(RentArrayTest, EachTaskIsALeaseWithALock) {
  const auto tasks = RentTasks(5, 2);
  ASSERT_OK(tasks);
  ASSERT_THAT(*tasks, SizeIs(5));
  EXPECT_EQ(tasks_.arrays, 1);
  EXPECT_EQ(tasks_.limit, 2);
  for (int task = 0; task < 5; ++task) {
    const Rental& rental = (*tasks)[static_cast<size_t>(task)];
    EXPECT_EQ(rental.lease.lease_id, TaskLease(tasks->front().lease.lease_id, task));
    EXPECT_EQ(rental.lease.state, LeaseState::kRented);
    EXPECT_EQ(rental.lease.instance_id, rental.instance.id);
    EXPECT_EQ(rental.instance.label, rental.lease.label);
    EXPECT_TRUE(LeaseLock::IsHeld(ledger_->state_dir(), rental.lease.lease_id).value());
    EXPECT_THAT(rental.lease.uses, IsEmpty());
  }
  EXPECT_THAT(account_->Billing(), SizeIs(5));
}

TEST_F(RentArrayTest, AllAreIntentsBeforeTheRequest) {
  tasks_.before = [this] {
    ASSERT_THAT(Leases(), SizeIs(3));
    for (const Lease& lease : Leases()) {
      EXPECT_EQ(lease.state, LeaseState::kIntent);
      EXPECT_TRUE(LeaseLock::IsHeld(ledger_->state_dir(), lease.lease_id).value());
    }
  };
  ASSERT_OK(RentTasks(3));
}

TEST_F(RentArrayTest, ARefusalLeavesNothing) {
  tasks_.refusal = absl::ResourceExhaustedError("job submit limit");
  EXPECT_THAT(RentTasks(3).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("job submit limit")));
  EXPECT_EQ(States(), std::set<LeaseState>{LeaseState::kNotCreated});
  EXPECT_THAT(account_->Billing(), IsEmpty());
}

TEST_F(RentArrayTest, WhatIsKilledBeforeTheAnswerIsFoundAndEnded) {
  struct Killed {};
  tasks_.hook = [](absl::string_view call, bool done) {
    if (call == "rent" && done) throw Killed();
  };
  EXPECT_THROW((void)RentTasks(3), Killed);
  tasks_.hook = nullptr;
  EXPECT_THAT(account_->Billing(), SizeIs(1)) << "the market had made one by then";
  EXPECT_EQ(States(), std::set<LeaseState>{LeaseState::kIntent});
  EXPECT_THAT(ReapTasks().reaped, SizeIs(1));
  EXPECT_THAT(account_->Billing(), IsEmpty());
  EXPECT_EQ(States(), (std::set<LeaseState>{LeaseState::kReleased, LeaseState::kNotCreated}));
}

TEST_F(RentArrayTest, WhatIsKilledAfterTheAnswerIsEndedToo) {
  { ASSERT_OK(RentTasks(4)); }  // the locks go with the process
  EXPECT_THAT(ReapTasks().reaped, SizeIs(4));
  EXPECT_THAT(account_->Billing(), IsEmpty());
}

TEST_F(RentArrayTest, ALostAnswerIsFoundByTheNames) {
  tasks_.lose_answer = true;
  const auto tasks = RentTasks(4);
  ASSERT_OK(tasks);
  EXPECT_THAT(*tasks, SizeIs(4));
  EXPECT_EQ(tasks_.arrays, 1) << "and nothing is submitted again";
  EXPECT_THAT(told_, Each(HasSubstr("was lost")));
}

TEST_F(RentArrayTest, ATaskThatIsNotListedStaysAnIntent) {
  tasks_.lose_answer = true;
  int lists = 0;
  tasks_.hook = [&](absl::string_view call, bool done) {
    if (call == "list" && !done && ++lists == 1) account_->End(account_->BillingIds().front());
  };
  const auto tasks = RentTasks(3);
  ASSERT_OK(tasks);
  EXPECT_THAT(*tasks, SizeIs(2));
  EXPECT_THAT(Leases(/*open_only=*/true), SizeIs(3));
}

TEST_F(RentArrayTest, WithoutAnyTaskNobodyKnows) {
  tasks_.refusal = absl::DeadlineExceededError("the controller does not answer");
  EXPECT_THAT(RentTasks(2).status(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("gpuctl reap finds out")));
  EXPECT_EQ(States(), std::set<LeaseState>{LeaseState::kIntent});
}

TEST_F(RentArrayTest, AnInterruptionEndsAll) {
  tasks_.hook = [this](absl::string_view call, bool done) {
    if (call == "rent" && done) cancelled_ = true;
  };
  EXPECT_THAT(RentTasks(3).status(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(account_->Billing(), IsEmpty());
  EXPECT_EQ(States(), std::set<LeaseState>{LeaseState::kReleased});
}

}  // namespace
}  // namespace gpuctl
