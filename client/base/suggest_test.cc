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

TEST(NearestTest, OfNumberedNamesTheFrontIsEnough) {
  const std::vector<std::string> runs = {"grid-4", "other-1", "grid-3", "grid-2", "grid-1"};
  EXPECT_EQ(DidYouMeanOneOf("gird", runs), " (did you mean \"grid-4\", \"grid-3\" or \"grid-2\"?)");
  EXPECT_EQ(DidYouMeanOneOf("othre-1", runs), " (did you mean \"other-1\"?)");
  // The nearest is the first: two letters are swapped there, and one more differs elsewhere.
  EXPECT_EQ(DidYouMeanOneOf("gird-2", runs),
            " (did you mean \"grid-2\", \"grid-4\" or \"grid-3\"?)");
  EXPECT_EQ(DidYouMeanOneOf("othe", runs), " (did you mean \"other-1\"?)");
  EXPECT_EQ(DidYouMeanOneOf("xyzzy", runs), "");
  EXPECT_EQ(DidYouMeanOneOf("xyzzy", {}), "");
}

}  // namespace
}  // namespace gpuctl
