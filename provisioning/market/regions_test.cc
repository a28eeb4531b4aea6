#include "provisioning/market/regions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuctl {
namespace {

using ::testing::UnorderedElementsAre;

TEST(RegionsTest, KnowsCountriesRegionsAndGroups) {
  EXPECT_EQ(CountryCode("California, USA"), "US");
  EXPECT_EQ(CountryCode("Frankfurt, Germany"), "DE");
  EXPECT_EQ(CountryCode("Sweden, SE"), "SE");
  EXPECT_EQ(CountryCode("us"), "US");
  EXPECT_EQ(CountryCode("EU"), "");
  EXPECT_EQ(CountryCode("us-west-1"), "");
  EXPECT_TRUE(IsInRegions({}, "anywhere", ""));
  EXPECT_TRUE(IsInRegions({"DE", "us"}, "us-west-1", "US"));
  EXPECT_TRUE(IsInRegions({"us-west"}, "us-west-1", "US"));
  EXPECT_FALSE(IsInRegions({"us-west"}, "us-east-1", "US"));
  EXPECT_FALSE(IsInRegions({"us-w"}, "us-west-1", "US"));
  EXPECT_TRUE(IsInRegions({"EU"}, "EU-RO-1", "RO"));
  EXPECT_FALSE(IsInRegions({"EU"}, "EUR-IS-1", "IS"));
  EXPECT_FALSE(IsInRegions({"EU"}, "somewhere", ""));
  EXPECT_TRUE(IsInRegions({"UK"}, "London, GB", "GB"));
  EXPECT_THAT(*CountriesAsked({"US", "north-america"}),
              UnorderedElementsAre("US", "US", "CA", "MX"));
  EXPECT_FALSE(CountriesAsked({"us-west-1"}).has_value());
  EXPECT_EQ(CountriesAsked({"EU"})->size(), 27u);
}

}  // namespace
}  // namespace gpuctl
