#include "client/base/port_pair.h"

#include <gtest/gtest.h>

namespace gpuctl {
namespace {

TEST(PortPair, ReadsOneOrTwoPorts) {
  const auto one = ParsePortPair("6006");
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->port, 6006);
  EXPECT_EQ(one->local, 0);
  const auto two = ParsePortPair("80:65535");
  ASSERT_TRUE(two.ok());
  EXPECT_EQ(two->port, 80);
  EXPECT_EQ(two->local, 65535);
}

TEST(PortPair, RefusesWhatIsNoPort) {
  for (const char* text :
       {"", ":", "0", "65536", "6006:", ":6006", "6006:0", "1:2:3", "-1", "+1", " 1", "1 ", "1e3",
        "0x10", "007", "100000", "a", "6006:b", "99999999999999999999"}) {
    EXPECT_FALSE(ParsePortPair(text).ok()) << text;
  }
}

TEST(PortPair, OnePortHereLeadsToOnePortThere) {
  EXPECT_TRUE(ParsePortPairs({"6006", "6006", "80:8080"}).ok());
  EXPECT_FALSE(ParsePortPairs({"6006:8080", "80:8080"}).ok());
  EXPECT_FALSE(ParsePortPairs({"6006", "x"}).ok());
}

}  // namespace
}  // namespace gpuctl
