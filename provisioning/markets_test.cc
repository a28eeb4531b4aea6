#include "provisioning/markets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_http.h"
#include "tests/support/matchers.h"
#include "tests/support/stepping_clock.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

TEST(Markets, EachAsksItsOwnAddressWithTheKeyInTheHeader) {
  for (const MarketFacts& facts : AllMarkets()) {
    EXPECT_EQ(FindMarket(facts.name), &facts);
    EXPECT_THAT(facts.base_url, StartsWith("https://"));
    auto http = std::make_shared<FakeHttp>();
    http->Answer(401, "{}");
    ProviderAccess access;
    access.base_url = "http://127.0.0.1:7";
    access.api_key = "k3y";
    const auto market = MakeMarket(facts.name, access, http);
    ASSERT_OK(market);
    EXPECT_EQ((*market)->name(), facts.name);
    EXPECT_THAT((*market)->ListInstances(), StatusIs(absl::StatusCode::kUnauthenticated));
    ASSERT_EQ(http->requests().size(), 1u);
    const HttpRequest request = http->requests()[0];
    EXPECT_THAT(request.url, StartsWith("http://127.0.0.1:7/"));
    EXPECT_THAT(request.headers,
                Contains(Pair(facts.name == "shadeform" ? "X-API-KEY" : "Authorization",
                              HasSubstr("k3y"))));
    EXPECT_TRUE(request.repeatable);
  }
}

TEST(Markets, NoOtherNames) {
  EXPECT_EQ(FindMarket("local"), nullptr);
  EXPECT_THAT(MakeMarket("local", {}, nullptr), StatusIs(absl::StatusCode::kInvalidArgument));
}

// The limits are the published ones, by the adapters' class names.
TEST(Markets, LimitsHold) {
  TempDir dir;
  SteppingClock clock;
  const auto second = [&](const char* market, const char* rate_class) {
    RateBuckets buckets(dir.Sub(std::string(market) + rate_class), FindMarket(market)->limits,
                        clock);
    buckets.Take(rate_class, absl::Hours(1));
    return buckets.Take(rate_class, absl::Hours(1));
  };
  EXPECT_EQ(second("lambda", "launch"), absl::Seconds(12));
  EXPECT_EQ(second("lambda", ""), absl::Seconds(1));
  EXPECT_EQ(second("vast", "create"), absl::Milliseconds(4500));
  EXPECT_EQ(second("vast", "destroy"), absl::Seconds(3));
  EXPECT_EQ(second("vast", "show"), absl::Seconds(2));
  EXPECT_EQ(second("vast", "list"), absl::Seconds(1));
  EXPECT_EQ(second("runpod", ""), absl::ZeroDuration());
}

}  // namespace
}  // namespace gpuctl
