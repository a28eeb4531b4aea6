// Tests which machine a launch gets, and what happens to those that it gives back.
#include "client/rent/rent_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "client/base/exit_codes.h"
#include "client/base/host_keys.h"
#include "client/market/instance_target.h"
#include "client/spec/run_spec.h"
#include "common/files/files.h"
#include "tests/support/billing_market.h"
#include "tests/support/client_world.h"
#include "tests/support/matchers.h"
#include "tests/support/stepping_clock.h"

namespace gpuctl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kGib = int64_t{1} << 30;

class RentNodeTest : public ::testing::Test {
 protected:
  RentNodeTest() : world_(clock_), account_(std::make_shared<BillingAccount>(clock_)) {
    auto market = std::make_unique<BillingMarket>("vast", account_, clock_);
    market_ = market.get();
    markets_.push_back({"vast", std::move(market), "test", nullptr});
    ledger_ = Ledger::Open(world_.state_dir(), clock_).value();
    request_.spec = &spec_;
    request_.run_id = "r-1";
    request_.run_name = "amber-fox-1";
    request_.offers = market_->ListOffers({}).value();
    Good("vast/i-001");
    Good("vast/i-002");
  }
  void Good(const std::string& name) {
    world_.script(name).Gpus("NVIDIA H100 80GB HBM3", 80 * kGib, 1);
  }
  // Calls RentNode. What that says on stderr goes to told_.
  absl::StatusOr<RentedNode> Rent() {
    ::testing::internal::CaptureStderr();
    absl::StatusOr<RentedNode> node = RentNode(world_.context, *ledger_, markets_, request_);
    told_ = ::testing::internal::GetCapturedStderr();
    return node;
  }
  std::vector<std::string> ExcludedPlaces() {
    std::vector<std::string> places;
    const std::vector<ExcludedPlace> excluded = ledger_->Excluded().value();
    for (const ExcludedPlace& place : excluded) places.push_back(place.place);
    return places;
  }
  std::vector<Lease> OpenLeases() { return ledger_->List(/*open_only=*/true).value(); }

  SteppingClock clock_;
  ClientWorld world_;
  std::shared_ptr<BillingAccount> account_;
  BillingMarket* market_ = nullptr;
  std::vector<Market> markets_;
  std::unique_ptr<Ledger> ledger_;
  RunSpec spec_;
  RentedNodeRequest request_;
  std::string told_;
};

TEST_F(RentNodeTest, TheFirstOfferThatWorksIsClaimedWithItsLimits) {
  const auto node = Rent();
  ASSERT_OK(node) << told_;
  EXPECT_EQ(node->target.name, "vast/i-001");
  EXPECT_EQ(node->target.host, "10.0.0.1");
  EXPECT_TRUE(node->use.held());
  EXPECT_GT(node->lease.claimed_ms, 0);
  EXPECT_EQ(node->lease.node_id, "n-1");
  const auto& limits = world_.script("vast/i-001").limits_set;
  ASSERT_EQ(limits.size(), 1u);
  EXPECT_EQ(limits[0].lease_id(), node->lease.lease_id);
  EXPECT_EQ(limits[0].instance_id(), "i-001");
  EXPECT_GT(limits[0].cost_usd(), 0);
  EXPECT_EQ(market_->rents, 1);
  EXPECT_EQ(market_->terminates, 0);
  EXPECT_THAT(ExcludedPlaces(), IsEmpty());
  // No other launch takes it before its job is there.
  EXPECT_THAT(LeaseLock::TakeUse(ledger_->state_dir(), node->lease.lease_id, clock_).status(),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(RentNodeTest, AMachineThatWasRentedBeforeIsTheOnlyOne) {
  LeaseTerms terms;
  terms.offer = request_.offers.front();
  absl::StatusOr<Rental> before =
      gpuctl::Rent(*ledger_, *market_, terms, RentOptions(), clock_, RentalHooks());
  ASSERT_OK(before);
  const std::string lease_id = before->lease.lease_id;
  request_.offers = {terms.offer};
  request_.rented = &*before;
  const auto node = Rent();
  ASSERT_OK(node) << told_;
  EXPECT_EQ(market_->rents, 1);
  EXPECT_EQ(node->lease.lease_id, lease_id);
  ASSERT_EQ(node->lease.uses.size(), 1u);
  EXPECT_EQ(node->lease.uses[0].run_id, "r-1");
  EXPECT_GT(node->lease.claimed_ms, 0);
}

TEST_F(RentNodeTest, AMachineThatWasRentedBeforeIsGivenBackWhenItIsOfNoUse) {
  LeaseTerms terms;
  terms.offer = request_.offers.front();
  absl::StatusOr<Rental> before =
      gpuctl::Rent(*ledger_, *market_, terms, RentOptions(), clock_, RentalHooks());
  ASSERT_OK(before);
  const std::string lease_id = before->lease.lease_id;
  account_->End(before->instance.id);
  request_.offers = {terms.offer};
  request_.rented = &*before;
  EXPECT_FALSE(Rent().ok());
  EXPECT_EQ(market_->rents, 1) << "no other is rented in its place";
  EXPECT_EQ(ledger_->Get(lease_id)->state, LeaseState::kReleased);
  EXPECT_THAT(OpenLeases(), IsEmpty());
}

TEST_F(RentNodeTest, AMarketThatEndsMachinesIsToldWhen) {
  const int64_t now_ms = absl::ToUnixMillis(clock_.Now());
  const auto without = Rent();
  ASSERT_OK(without) << told_;
  EXPECT_EQ(market_->rented_with.expires_at, absl::InfiniteFuture());
  EXPECT_EQ(without->lease.ends_ms, 0);

  market_->market_traits.expiry.at_create = true;
  request_.run_id = "r-2";
  const auto node = Rent();
  ASSERT_OK(node) << told_;
  EXPECT_EQ(node->lease.ends_ms, absl::ToUnixMillis(market_->rented_with.expires_at));
  // It comes after all that the machine's own limits allow.
  const double hours = static_cast<double>(node->lease.ends_ms - now_ms) / 3'600'000;
  EXPECT_GT(hours * node->lease.usd_per_hour(), node->lease.limits.cost_usd);
  EXPECT_LT(hours * node->lease.usd_per_hour(), node->lease.limits.cost_usd * 1.2);
  // A run on a machine that was slow to come has its whole time, too.
  EXPECT_GE(market_->rented_with.expires_at, absl::FromUnixMillis(now_ms) + MostLifetime(spec_) +
                                                 market_->market_traits.ready_within +
                                                 request_.ssh_within);
}

TEST_F(RentNodeTest, AnEndThatTheMarketDroppedIsSetOnceMore) {
  market_->market_traits.expiry = {/*at_create=*/true, /*can_move=*/true};
  market_->ignored_expiries = 1;
  const auto node = Rent();
  ASSERT_OK(node) << told_;
  EXPECT_EQ(node->lease.ends_ms, absl::ToUnixMillis(market_->rented_with.expires_at));
  EXPECT_THAT(told_, Not(HasSubstr("warning: vast was told")));
}

TEST_F(RentNodeTest, AnEndThatTheMarketDoesNotTakeIsToldAndNotPromised) {
  market_->market_traits.expiry = {/*at_create=*/true, /*can_move=*/true};
  market_->ignored_expiries = 2;
  const auto node = Rent();
  ASSERT_OK(node) << told_;
  EXPECT_EQ(node->lease.ends_ms, 0);
  EXPECT_THAT(told_, HasSubstr("warning: vast was told to end i-001 at "));
  EXPECT_THAT(told_, HasSubstr("only a gpuctl ends its bill"));
  // Where it cannot be moved, nobody tries.
  market_->market_traits.expiry.can_move = false;
  market_->ignored_expiries = 1;
  request_.run_id = "r-2";
  const auto other = Rent();
  ASSERT_OK(other) << told_;
  EXPECT_EQ(other->lease.ends_ms, 0);
  EXPECT_THAT(told_, HasSubstr("warning: vast was told to end i-002 at "));
}

TEST_F(RentNodeTest, AMarketThatKeepsNoMachineLongEnoughIsNotAsked) {
  market_->market_traits.expiry = {/*at_create=*/true, /*can_move=*/true, absl::Hours(1)};
  spec_.time_limit = absl::Hours(2);
  EXPECT_FALSE(Rent().ok());
  EXPECT_THAT(told_, HasSubstr("vast keeps a machine for 1h 00m at most"));
  EXPECT_EQ(market_->rents, 0);
}

TEST_F(RentNodeTest, AMachineGetsItsHostKeyWhereTheMarketTakesOne) {
  market_->market_traits.takes_host_key = true;
  bool known_before = false;
  market_->hook = [&](absl::string_view call, bool done) {
    if (call != "rent" || done) return;
    const std::vector<Lease> open = OpenLeases();
    known_before = open.size() == 1 && absl::StartsWith(open[0].host_key, "ssh-ed25519 ");
  };
  const auto node = Rent();
  ASSERT_OK(node) << told_;
  EXPECT_TRUE(known_before);
  EXPECT_EQ(node->lease.host_key, market_->rented_with.host_key.public_key);
  EXPECT_THAT(node->target.given_host_key, ::testing::StartsWith("SHA256:"));
  EXPECT_EQ(node->target.given_host_key, GivenHostKey(node->lease));
  // The other part is nowhere here.
  const std::string& pem = market_->rented_with.host_key.private_key;
  ASSERT_GT(pem.size(), 300u);
  const std::string secret = pem.substr(pem.size() - 165, 60);
  const auto ledger = ReadFileToString(JoinPath(world_.state_dir(), "ledger.db"));
  ASSERT_OK(ledger);
  EXPECT_FALSE(absl::StrContains(*ledger, secret));
}

TEST_F(RentNodeTest, AMachineOfAnotherMarketMakesItsOwnHostKey) {
  const auto node = Rent();
  ASSERT_OK(node) << told_;
  EXPECT_EQ(market_->rented_with.host_key.private_key, "");
  EXPECT_EQ(node->lease.host_key, "");
  EXPECT_EQ(node->target.given_host_key, "");
}

TEST_F(RentNodeTest, AMachineMakesItsHostKeyWhereTheUserWantsIt) {
  market_->market_traits.takes_host_key = true;
  setenv("GPUCTL_HOST_KEY", "mine", 1);
  EXPECT_THAT(Rent(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"mine\"")));
  EXPECT_EQ(market_->rents, 0);
  setenv("GPUCTL_HOST_KEY", "machine", 1);
  const auto node = Rent();
  unsetenv("GPUCTL_HOST_KEY");
  ASSERT_OK(node) << told_;
  EXPECT_EQ(market_->rented_with.host_key.private_key, "");
  EXPECT_EQ(node->target.given_host_key, "");
}

TEST_F(RentNodeTest, AMachineWithAnotherHostKeyIsGivenBackAndNoOtherIsRented) {
  world_.script("vast/i-001").ssh = CheckGivenHostKey("vast/i-001", "SHA256:given", "SHA256:shown");
  const auto node = Rent();
  EXPECT_THAT(node, StatusIs(absl::StatusCode::kPermissionDenied,
                             AllOf(HasSubstr("SHA256:given"), HasSubstr("SHA256:shown"))));
  EXPECT_THAT(HintOf(node.status()), HasSubstr("somebody may be between"));
  EXPECT_EQ(market_->rents, 1);
  EXPECT_EQ(world_.script("vast/i-001").ssh_tries, 1);
  EXPECT_THAT(account_->BillingIds(), IsEmpty());
}

TEST_F(RentNodeTest, AnOfferThatIsGoneMakesWayForTheNext) {
  market_->hook = [this](absl::string_view call, bool done) {
    if (call != "rent" || done) return;
    market_->refusal =
        market_->rents == 0 ? absl::AbortedError("no such offer any more") : absl::OkStatus();
  };
  const auto node = Rent();
  ASSERT_OK(node) << told_;
  EXPECT_EQ(market_->rents, 2);
  EXPECT_EQ(node->lease.place, "vast:EU-1");
  EXPECT_THAT(told_, HasSubstr("no such offer any more; trying the next offer"));
  // Nobody saw that machine, so its place is not excluded.
  EXPECT_THAT(ExcludedPlaces(), IsEmpty());
}

TEST_F(RentNodeTest, AMachineThatLetsNobodyInIsGivenBackAndItsPlaceLeftOut) {
  world_.script("vast/i-001").ssh = absl::UnavailableError("connection refused");
  const auto node = Rent();
  ASSERT_OK(node) << told_;
  EXPECT_EQ(node->target.name, "vast/i-002");
  EXPECT_THAT(account_->BillingIds(), ElementsAre("i-002"));
  EXPECT_THAT(ExcludedPlaces(), ElementsAre("vast:US-1"));
  EXPECT_THAT(told_, HasSubstr("giving i-001 back: reach vast/i-001 by ssh: connection refused"));
  EXPECT_GT(world_.script("vast/i-001").ssh_tries, 10);
  EXPECT_GE(account_->Billed("i-001"), absl::Minutes(5));
  EXPECT_LT(account_->Billed("i-001"), absl::Minutes(6));
}

TEST_F(RentNodeTest, APlaceThatWasBadLatelyIsNotRented) {
  ASSERT_OK(ledger_->Exclude("vast:US-1", absl::Hours(1), "no ssh"));
  const auto node = Rent();
  ASSERT_OK(node) << told_;
  EXPECT_EQ(node->lease.place, "vast:EU-1");
  EXPECT_EQ(market_->rents, 1);
  EXPECT_THAT(told_, HasSubstr("left out: vast vast:US-1"));
  ASSERT_OK(ledger_->Exclude("vast:EU-1", absl::Hours(1), "no ssh"));
  const auto none = Rent();
  EXPECT_THAT(none, StatusIs(absl::StatusCode::kNotFound, HasSubstr("bad lately")));
  EXPECT_EQ(ExitCodeOf(none.status()), kExitCapacity);
  EXPECT_EQ(market_->rents, 1);
}

TEST_F(RentNodeTest, AnImageThatCannotBePulledEndsTheLaunchAndBlamesNoMachine) {
  market_->market_traits.takes_login = true;
  spec_.image = "ghcr.io/ada/tool:1";
  spec_.registry = {"", "ada", "GHCR_TOKEN"};
  request_.login = RegistryLogin{"ghcr.io", "ada", "s3cret-word"};
  market_->hook = [this](absl::string_view call, bool done) {
    if (call == "rent" && done) {
      // Not every market keeps a password to itself.
      account_->LackImage("i-001", "loading: docker login -p s3cret-word: unauthorized");
    }
  };
  const auto node = Rent();
  EXPECT_THAT(node, StatusIs(absl::StatusCode::kFailedPrecondition,
                             AllOf(HasSubstr("its image cannot be pulled"),
                                   HasSubstr("the login was that of ada at ghcr.io"))));
  EXPECT_THAT(HintOf(node.status()),
              AllOf(HasSubstr("docker login ghcr.io -u ada"), HasSubstr("GHCR_TOKEN")));
  EXPECT_EQ(ExitCodeOf(node.status()), kExitProvider);
  EXPECT_EQ(market_->rented_with.registry_login->password, "s3cret-word");
  EXPECT_EQ(market_->rents, 1);
  EXPECT_THAT(account_->BillingIds(), IsEmpty());
  EXPECT_THAT(ExcludedPlaces(), IsEmpty());
  EXPECT_THAT(told_, AllOf(HasSubstr("docker login -p [hidden]"), Not(HasSubstr("s3cret"))));
  EXPECT_THAT(node.status().ToString(), Not(HasSubstr("s3cret")));
  const auto ledger = ReadFileToString(JoinPath(world_.state_dir(), "ledger.db"));
  ASSERT_OK(ledger);
  EXPECT_FALSE(absl::StrContains(*ledger, "s3cret"));
}

TEST_F(RentNodeTest, ARefusalThatRepeatsThePasswordIsKeptWithoutIt) {
  market_->market_traits.takes_login = true;
  request_.login = RegistryLogin{"ghcr.io", "ada", "s3cret-word"};
  market_->refusal = absl::AbortedError("bad login -u ada -p s3cret-word ghcr.io");
  const auto node = Rent();
  EXPECT_THAT(node.status().ToString(), AllOf(HasSubstr("[hidden]"), Not(HasSubstr("s3cret"))));
  EXPECT_THAT(told_, Not(HasSubstr("s3cret")));
  const auto ledger = ReadFileToString(JoinPath(world_.state_dir(), "ledger.db"));
  ASSERT_OK(ledger);
  EXPECT_FALSE(absl::StrContains(*ledger, "s3cret"));
}

TEST_F(RentNodeTest, AMachineThatNeverComesMayLackItsImage) {
  market_->market_traits.takes_login = true;
  market_->boots_in = absl::Hours(10);
  spec_.image = "ghcr.io/ada/tool:1";
  request_.login = RegistryLogin{"ghcr.io", "ada", "s3cret-word"};
  EXPECT_THAT(Rent(), StatusIs(absl::StatusCode::kNotFound,
                               HasSubstr("perhaps ghcr.io/ada/tool:1 cannot be pulled as ada at "
                                         "ghcr.io: wait for")));
}

TEST_F(RentNodeTest, AnImageWithoutALoginHasAHint) {
  spec_.image = "ghcr.io/ada/tool:1";
  market_->hook = [this](absl::string_view call, bool done) {
    if (call == "rent" && done) account_->LackImage("i-001", "pull access denied");
  };
  const auto node = Rent();
  EXPECT_THAT(node, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("cannot be pulled")));
  EXPECT_THAT(HintOf(node.status()), AllOf(HasSubstr("--registry"), HasSubstr("ghcr.io")));
}

TEST_F(RentNodeTest, AnotherGpuThanPromisedIsGivenBack) {
  world_.script("vast/i-001").Gpus("NVIDIA A10", 24 * kGib, 1);
  const auto node = Rent();
  ASSERT_OK(node) << told_;
  EXPECT_EQ(node->target.name, "vast/i-002");
  EXPECT_THAT(account_->BillingIds(), ElementsAre("i-002"));
  EXPECT_THAT(ExcludedPlaces(), ElementsAre("vast:US-1"));
  EXPECT_THAT(told_, HasSubstr("its offer promised 1 x H100, there is 1 x A10"));
  EXPECT_THAT(world_.script("vast/i-001").limits_set, IsEmpty());
}

TEST_F(RentNodeTest, AMachineDearerThanThePlanShowedIsGivenBack) {
  market_->hook = [this](absl::string_view call, bool done) {
    if (call == "rent" && !done) market_->dearer_by = 1.5;
  };
  request_.offers.resize(1);
  request_.agreed_usd_per_hour = 2.0;
  spec_.cost_limit_usd = 20.0;
  const auto node = Rent();
  EXPECT_FALSE(node.ok());
  EXPECT_THAT(account_->BillingIds(), IsEmpty());
  EXPECT_THAT(told_, HasSubstr("which is more than the $2.00/h of the plan"));
  EXPECT_TRUE(world_.script("vast/i-001").limits_set.empty());
}

TEST_F(RentNodeTest, ABadMachineThatCannotBeEndedIsNotFollowedByAnother) {
  world_.script("vast/i-001").Gpus("NVIDIA A10", 24 * kGib, 1);
  market_->ignored_terminates = 1000;
  const auto node = Rent();
  EXPECT_THAT(node.status(), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("i-001")));
  EXPECT_EQ(market_->rents, 1);
  EXPECT_EQ(ExitCodeOf(node.status()), kExitProvider);
  EXPECT_EQ(OpenLeases().size(), 1u);
}

TEST_F(RentNodeTest, CtrlCBeforeTheAddressLeavesNothingThatBills) {
  market_->boots_in = absl::Minutes(3);
  bool raised = false;
  market_->hook = [&raised](absl::string_view call, bool done) {
    if (call == "describe" && done && !std::exchange(raised, true)) raise(SIGINT);
  };
  const auto node = Rent();
  EXPECT_THAT(node.status(),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("i-001 was ended, nothing bills")));
  EXPECT_EQ(ExitCodeOf(node.status()), kExitInterrupted);
  EXPECT_THAT(account_->Billing(), IsEmpty());
  EXPECT_THAT(OpenLeases(), IsEmpty());
  EXPECT_EQ(market_->rents, 1);
  // The machine is not bad.
  EXPECT_THAT(ExcludedPlaces(), IsEmpty());
  EXPECT_THAT(told_,
              AllOf(HasSubstr("giving i-001 back: interrupted"), Not(HasSubstr("bills on"))));
}

TEST_F(RentNodeTest, CtrlCSaysWhatBillsWhenTheMarketDoesNotEndIt) {
  market_->boots_in = absl::Minutes(3);
  market_->ignored_terminates = 1000;
  bool raised = false;
  market_->hook = [&raised](absl::string_view call, bool done) {
    if (call == "describe" && done && !std::exchange(raised, true)) raise(SIGTERM);
  };
  const auto node = Rent();
  ASSERT_FALSE(node.ok());
  EXPECT_THAT(std::string(node.status().message()),
              AllOf(HasSubstr("i-001"), Not(HasSubstr("nothing bills"))));
  EXPECT_EQ(account_->Billing().size(), 1u);
  EXPECT_EQ(OpenLeases().size(), 1u);
  EXPECT_EQ(market_->rents, 1);
}

TEST_F(RentNodeTest, WhenAllOffersAreGoneNothingIsLeft) {
  market_->refusal = absl::AbortedError("no such offer any more");
  const auto node = Rent();
  EXPECT_THAT(node.status(), StatusIs(absl::StatusCode::kNotFound,
                                      AllOf(HasSubstr("none of 2 offers could be had"),
                                            HasSubstr("no such offer any more"))));
  EXPECT_EQ(ExitCodeOf(node.status()), kExitCapacity);
  EXPECT_EQ(static_cast<int>(ExitCodeOf(node.status())), 121);
  EXPECT_THAT(HintOf(node.status()), HasSubstr("--max-price"));
  EXPECT_EQ(CauseOf(node.status()), "");
  EXPECT_EQ(market_->rents, 2);
  EXPECT_THAT(account_->Billing(), IsEmpty());
}

TEST_F(RentNodeTest, AHigherPriceIsNotTheHintForABadMachine) {
  world_.script("vast/i-001").Gpus("NVIDIA A10", 24 * kGib, 1);
  request_.offers.resize(1);
  const auto node = Rent();
  EXPECT_THAT(node.status(), StatusIs(absl::StatusCode::kNotFound,
                                      HasSubstr("none of 1 offers could be had; the last: ")));
  EXPECT_EQ(CauseOf(node.status()), kBadMachine);
  EXPECT_EQ(ExitCodeOf(node.status()), kExitCapacity);
  EXPECT_THAT(HintOf(node.status()),
              AllOf(HasSubstr("its place is left out for a while"), Not(HasSubstr("price"))));
  EXPECT_THAT(account_->Billing(), IsEmpty());
}

TEST_F(RentNodeTest, TheHintForTooLittleMoneyIsMoney) {
  spec_.cost_limit_usd = 0.01;
  const auto node = Rent();
  EXPECT_THAT(node.status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("$0.01 do not pay for")));
  EXPECT_THAT(HintOf(node.status()), HasSubstr("which cost would do"));
  EXPECT_EQ(market_->rents, 0);
}

TEST_F(RentNodeTest, AMarketThatRefusesTheKeyIsNotAskedAgain) {
  market_->refusal = absl::UnauthenticatedError("wrong key");
  const auto node = Rent();
  EXPECT_THAT(node.status(), StatusIs(absl::StatusCode::kUnauthenticated));
  EXPECT_EQ(ExitCodeOf(node.status()), kExitCredentials);
  EXPECT_EQ(market_->rents, 1);
  EXPECT_THAT(told_, HasSubstr("no more requests go to vast"));
}

// A full disk of the laptop, for example. The market is not to blame, and no other offer helps.
TEST_F(RentNodeTest, ALaptopThatCannotDoItsPartRentsNothing) {
  ledger_->SetWriteHook([](absl::string_view, bool) {
    return absl::ResourceExhaustedError("write the ledger: the disk is full");
  });
  absl::StatusOr<RentedNode> node = Rent();
  EXPECT_THAT(node.status(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("disk")));
  EXPECT_EQ(ExitCodeOf(node.status()), kExitFailed);
  EXPECT_THAT(HintOf(node.status()), IsEmpty());
  EXPECT_THAT(told_, Not(HasSubstr("no more requests")));
  ledger_->SetWriteHook(nullptr);
  // Its key for rented machines cannot be read.
  const std::string key = world_.context.Paths()->own_key();
  EXPECT_OK(RemoveTree(key));
  EXPECT_OK(RemoveTree(key + ".pub"));
  EXPECT_OK(MakeDirectories(key + ".pub"));
  EXPECT_OK(MakeDirectories(key));
  node = Rent();
  EXPECT_FALSE(node.ok());
  EXPECT_THAT(HintOf(node.status()), IsEmpty());
  EXPECT_EQ(told_.find("renting"), told_.rfind("renting")) << told_;
  EXPECT_EQ(market_->rents, 0);
  EXPECT_THAT(account_->Billing(), IsEmpty());
}

// Neither a refusal nor a bad machine: the market takes further requests, and no offer is left.
TEST_F(RentNodeTest, MachinesThatCannotBeReachedForNowAreTold) {
  for (const char* const name : {"vast/i-001", "vast/i-002"}) {
    world_.script(name).connect = absl::UnavailableError("the network is down");
  }
  const auto node = Rent();
  EXPECT_THAT(node.status(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("network")));
  EXPECT_EQ(ExitCodeOf(node.status()), kExitProvider);
  EXPECT_THAT(account_->Billing(), IsEmpty());
}

TEST_F(RentNodeTest, NothingElseIsRentedWhileTheFirstMayExist) {
  market_->creates = {BillingMarket::Create::kLostButThere};
  market_->list_lag = absl::Hours(1);
  market_->list_answers.assign(1000, absl::UnavailableError("503"));
  const auto node = Rent();
  EXPECT_THAT(node.status(), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(market_->rents, 1);
  EXPECT_EQ(OpenLeases().size(), 1u);
}

}  // namespace
}  // namespace gpuctl
