#include "client/market/price_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/base/exit_codes.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

Offer At(const std::string& ref, double usd_per_hour) {
  Offer offer;
  offer.ref = ref;
  offer.provider = "vast";
  offer.gpu_name = "RTX-3090";
  offer.gpu_count = 1;
  offer.price_usd_per_hour = usd_per_hour;
  return offer;
}

TEST(PriceLimit, AQuarterMoreInWholeCents) {
  EXPECT_DOUBLE_EQ(OwnPriceLimit(0.15), 0.19);
  EXPECT_DOUBLE_EQ(OwnPriceLimit(2.0), 2.5);
  EXPECT_DOUBLE_EQ(OwnPriceLimit(0.4), 0.5);
  EXPECT_DOUBLE_EQ(OwnPriceLimit(0), 0);
}

TEST(PriceLimit, DearerOnesGoAndTheOrderStays) {
  std::vector<Offer> offers = {At("a", 0.18), At("d", 4.0), At("b", 0.15), At("c", 0.23)};
  const auto next = LeaveOutDearer(0.19, offers);
  ASSERT_EQ(offers.size(), 2u);
  EXPECT_EQ(offers[0].ref, "a");
  EXPECT_EQ(offers[1].ref, "b");
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->ref, "c");
  EXPECT_FALSE(LeaveOutDearer(0.19, offers).has_value());
}

TEST(PriceLimit, TheErrorNamesTheNextPriceAndTheFlag) {
  const absl::Status gone = WithExitCode(absl::NotFoundError("none could be had"), kExitCapacity);
  const absl::Status told = WithNextPrice(gone, 0.19, At("c", 0.2301));
  EXPECT_TRUE(absl::IsNotFound(told));
  EXPECT_EQ(ExitCodeOf(told), kExitCapacity);
  EXPECT_THAT(std::string(told.message()),
              HasSubstr("none could be had; the next one is RTX-3090:1 at vast for $0.23"));
  EXPECT_THAT(std::string(told.message()), HasSubstr("the limit is $0.19"));
  EXPECT_EQ(HintOf(told), "--max-price 0.24 allows that one");
}

}  // namespace
}  // namespace gpuctl
