// Which links an allocation gets: to its node, to what was kept of it, or none.
#include "client/node/allocation_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/link/agent_calls.h"
#include "common/base/link_fault.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/rental/rental.h"
#include "tests/support/billing_market.h"
#include "tests/support/client_world.h"
#include "tests/support/matchers.h"
#include "tests/support/stepping_clock.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class AllocationLinksTest : public ::testing::Test {
 protected:
  AllocationLinksTest() : world_(clock_), account_(std::make_shared<BillingAccount>(clock_)) {
    auto market = std::make_shared<BillingMarket>("fake", account_, clock_);
    market_ = market.get();
    ledger_ = Ledger::Open(world_.state_dir(), clock_).value();
    LeaseTerms terms;
    terms.offer = market->AnOffer();
    terms.run_id = "r-1";
    lease_ = Rent(*ledger_, *market, terms, {}, clock_, {}).value().lease;
    NodeTarget target;
    target.provider = "fake";
    target.name = "fake/" + lease_.instance_id;
    links_ = MakeAllocationLinks(
        world_.context, target, world_.node("live").Links(),
        [this](const std::string& label, bool in_queue) -> std::unique_ptr<LinkFactory> {
          EXPECT_EQ(label, lease_.label);
          made_.push_back(in_queue ? "in queue" : "over");
          return nothing_kept_ ? nullptr : world_.node(made_.back()).Links();
        },
        [market](const std::vector<std::string>&) {
          std::vector<Market> markets(1);
          markets[0].provider = market;
          return markets;
        });
    world_.script("live").hello.set_node_id("live");
    world_.script("in queue").hello.set_node_id("in queue");
    world_.script("over").hello.set_node_id("over");
  }
  // The scheduler told its end while it ran.
  void HasBegun() { ASSERT_OK(ledger_->SetEnds(lease_.lease_id, 1000)); }
  void NodeIsGone() {
    world_.script("live").connect = absl::UnavailableError("connection refused");
    // Whoever asks is not answered from memory.
    clock_.Advance(absl::Minutes(1));
  }
  void PutIntoQueue(const std::string& words) {
    account_->SetState(lease_.instance_id, Instance::State::kStarting, "");
    // So that the market's word stays until another comes.
    account_->LackImage(lease_.instance_id, words);
  }
  // Returns the node that answers over a link, or the error of making one.
  std::string Answers(const absl::StatusOr<std::unique_ptr<Link>>& link) {
    error_ = link.status();
    if (!link.ok()) return std::string(link.status().message());
    grpc::ClientContext context;
    gpuctl::v1::HelloReply reply;
    EXPECT_TRUE((*link)->agent().stub->Hello(&context, {}, &reply).ok());
    return reply.node_id();
  }
  std::string Follow() { return Answers(links_->Connect()); }
  std::string Call() { return Answers(links_->ConnectForCalls()); }

  SteppingClock clock_;
  ClientWorld world_;
  std::shared_ptr<BillingAccount> account_;
  BillingMarket* market_ = nullptr;
  std::unique_ptr<Ledger> ledger_;
  Lease lease_;
  std::vector<std::string> made_;  // links to what was kept
  bool nothing_kept_ = false;
  std::unique_ptr<LinkFactory> links_;
  absl::Status error_;
};

TEST_F(AllocationLinksTest, ItsNodeIsAskedWhileItRuns) {
  EXPECT_EQ(Follow(), "live");
  EXPECT_EQ(Call(), "live");
  // A link that fails says nothing of the allocation.
  NodeIsGone();
  EXPECT_THAT(Call(), HasSubstr("connection refused"));
  EXPECT_THAT(made_, IsEmpty());
  EXPECT_EQ(ledger_->Get(lease_.lease_id).value().state, LeaseState::kRented);
}

// The error of a step is that of a job in the queue, and a moment later Slurm says that it runs.
TEST_F(AllocationLinksTest, OneThatBeginsWhileItsNodeIsAskedIsAskedAgain) {
  world_.script("live").connect = absl::FailedPreconditionError("a step in a job that waits");
  market_->hook = [this](absl::string_view call, bool done) {
    if (call == "describe" && done) world_.script("live").connect = absl::OkStatus();
  };
  EXPECT_EQ(Follow(), "live");
}

TEST_F(AllocationLinksTest, WhatWasKeptIsReadWhenItIsOver) {
  account_->End(lease_.instance_id);
  NodeIsGone();
  EXPECT_EQ(Call(), "over");
  EXPECT_EQ(Follow(), "over");
  EXPECT_THAT(made_, ElementsAre("over")) << "made once";
  EXPECT_EQ(ledger_->Get(lease_.lease_id).value().state, LeaseState::kReleased);
  // A step is no way to read it.
  EXPECT_EQ(FaultOf(links_->Run("true").status()), LinkFault::kReleased);
}

TEST_F(AllocationLinksTest, WhereNothingWasKeptTheNodesErrorIsTold) {
  nothing_kept_ = true;
  account_->End(lease_.instance_id);
  NodeIsGone();
  // Also where the node's words are those of an allocation that has not begun.
  for (const LinkFault fault : {LinkFault::kNone, LinkFault::kNotHeld}) {
    world_.script("live").connect = WithFault(absl::UnavailableError("connection refused"), fault);
    EXPECT_THAT(Follow(), HasSubstr("connection refused"));
    EXPECT_TRUE(absl::IsUnavailable(error_));
    EXPECT_EQ(FaultOf(error_), LinkFault::kNothingKept);
  }
}

TEST_F(AllocationLinksTest, WhatWasKeptAndDoesNotAnswerMayAnswerLater) {
  account_->End(lease_.instance_id);
  NodeIsGone();
  world_.script("over").connect = absl::UnavailableError("no route to the login node");
  EXPECT_THAT(Follow(), HasSubstr("no route to the login node"));
  EXPECT_NE(FaultOf(error_), LinkFault::kNothingKept);
  world_.script("over").connect = absl::OkStatus();
  EXPECT_EQ(Follow(), "over");
}

TEST_F(AllocationLinksTest, ASchedulerThatDoesNotAnswerEndsNothing) {
  account_->End(lease_.instance_id);
  market_->describe_answers.assign(10, absl::UnavailableError("the controller hangs"));
  NodeIsGone();
  EXPECT_THAT(Call(), HasSubstr("connection refused"));
  EXPECT_THAT(made_, IsEmpty());
  EXPECT_EQ(ledger_->Get(lease_.lease_id).value().state, LeaseState::kRented);
}

TEST_F(AllocationLinksTest, InTheQueueWhatWasKeptIsReadOnceByWhoFollows) {
  HasBegun();
  PutIntoQueue("PENDING (BeginTime)");
  NodeIsGone();
  EXPECT_EQ(Follow(), "in queue");
  const std::string waits = Follow();
  EXPECT_THAT(waits, HasSubstr("requeued by Slurm: PENDING (BeginTime)"));
  EXPECT_EQ(FaultOf(error_), LinkFault::kNotHeld);
  EXPECT_THAT(HintOf(error_), HasSubstr("goes on by itself"));
  // Each call is answered.
  EXPECT_EQ(Call(), "in queue");
  EXPECT_EQ(Call(), "in queue");
  EXPECT_THAT(links_->Run("true").status().message(), HasSubstr("requeued by Slurm"));
  EXPECT_THAT(made_, ElementsAre("in queue"));
  // Its next start is another node's.
  account_->SetState(lease_.instance_id, Instance::State::kRunning, "");
  world_.script("live").connect = absl::OkStatus();
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ(Follow(), "live");
}

TEST_F(AllocationLinksTest, ASuspendedOneSaysSoAndNothingIsRead) {
  account_->Suspend(lease_.instance_id, true);
  account_->SetState(lease_.instance_id, Instance::State::kRunning, "SUSPENDED");
  NodeIsGone();
  for (const std::string& said : {Follow(), Call()}) {
    EXPECT_THAT(said, HasSubstr("is suspended by Slurm: SUSPENDED"));
    EXPECT_EQ(FaultOf(error_), LinkFault::kSuspended);
  }
  EXPECT_THAT(made_, IsEmpty());
}

TEST_F(AllocationLinksTest, AHeldOneNeedsSomebodyWhoLetsItGo) {
  HasBegun();
  account_->Hold(lease_.instance_id, true);
  PutIntoQueue("PENDING (JobHeldUser)");
  NodeIsGone();
  nothing_kept_ = true;
  EXPECT_THAT(Call(), HasSubstr("requeued by Slurm: PENDING (JobHeldUser)"));
  EXPECT_THAT(HintOf(error_), Not(HasSubstr("goes on by itself")));
}

TEST_F(AllocationLinksTest, OneThatHasNotBegunIsGivenRunsAndSaysThatItWaits) {
  PutIntoQueue("PENDING (Resources)");
  NodeIsGone();
  // It goes to the login node.
  (void)links_->RunAgent(absl::StrCat(kStageCommand, "7"));
  EXPECT_THAT(made_, ElementsAre("in queue"));
  EXPECT_EQ(Call(), "in queue");
  EXPECT_EQ(Follow(), "in queue");
  EXPECT_THAT(Follow(), HasSubstr("waits in Slurm's queue: PENDING (Resources)"));
  EXPECT_THAT(HintOf(error_), HasSubstr("begins by itself"));
  // One that has begun meanwhile has a node to ask.
  account_->SetState(lease_.instance_id, Instance::State::kRunning, "");
  world_.script("live").connect = absl::OkStatus();
  clock_.Advance(absl::Minutes(1));
  EXPECT_THAT(links_->RunAgent(absl::StrCat(kStageCommand, "7")).status().message(),
              HasSubstr("has begun"));
}

}  // namespace
}  // namespace gpuctl
