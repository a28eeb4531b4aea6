#include "client/base/suggest.h"

#include <gtest/gtest.h>

namespace gpuctl {
namespace {

const std::vector<std::string> kVerbs = {"launch", "attach", "ps", "logs", "stop", "pull"};

TEST(EditDistanceTest, CountsSwapsAsOne) {
  EXPECT_EQ(EditDistance("attach", "attach"), 0);
  EXPECT_EQ(EditDistance("atatch", "attach"), 1);
  EXPECT_EQ(EditDistance("PULL", "pull"), 0);
  EXPECT_EQ(EditDistance("", "abc"), 3);
}

TEST(NearestTest, FindsWhatWasMeant) {
  EXPECT_EQ(Nearest("lauch", kVerbs), "launch");
  EXPECT_EQ(Nearest("atach", kVerbs), "attach");
  EXPECT_EQ(Nearest("pul", kVerbs), "pull");
  EXPECT_EQ(Nearest("att", kVerbs), "attach");  // a prefix
  EXPECT_EQ(Nearest("xyzzy", kVerbs), "");
  EXPECT_EQ(DidYouMean("lunch", kVerbs), " (did you mean \"launch\"?)");
  EXPECT_EQ(DidYouMean("xyzzy", kVerbs), "");
}

}  // namespace
}  // namespace gpuctl
