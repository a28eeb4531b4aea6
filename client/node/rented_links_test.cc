#include "client/node/rented_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "client/base/exit_codes.h"
#include "common/base/link_fault.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/rental/rental.h"
#include "tests/support/billing_market.h"
#include "tests/support/client_world.h"
#include "tests/support/matchers.h"
#include "tests/support/stepping_clock.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

TEST(RentedLinksTest, AMachineThatWasGivenBackIsNotAsked) {
  SteppingClock clock;
  ClientWorld world(clock);
  auto account = std::make_shared<BillingAccount>(clock);
  BillingMarket market("fake", account, clock);
  const std::unique_ptr<Ledger> ledger = Ledger::Open(world.state_dir(), clock).value();
  LeaseTerms terms;
  terms.offer = market.AnOffer();
  terms.run_id = "r-1";
  const auto rental = Rent(*ledger, market, terms, {}, clock, {});
  ASSERT_OK(rental);
  const std::string id = rental->lease.lease_id;
  NodeTarget target;
  target.provider = "fake";
  target.name = "fake/" + rental->lease.instance_id;
  const auto connect = [&] {
    const auto links = MakeRentedLinks(world.context, target, [&](const NodeTarget&) {
      world.script("fake").connect = absl::UnavailableError("connection refused");
      return world.node("fake").Links();
    });
    return links->Connect().status();
  };
  EXPECT_THAT(connect(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("refused")));
  ASSERT_OK(ledger->Releasing(id));
  ASSERT_OK(ledger->Released(id, 0, "user"));
  clock.Advance(absl::Hours(2));
  const absl::Status status = connect();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("given back 2h")));
  EXPECT_EQ(FaultOf(status), LinkFault::kReleased);
  EXPECT_THAT(HintOf(status), HasSubstr("gpuctl logs"));
}

}  // namespace
}  // namespace gpuctl
