#include "client/terminal/shown_name.h"

#include <gtest/gtest.h>

namespace gpuctl {
namespace {

TEST(FirstFewTest, NamesThree) {
  EXPECT_EQ(FirstFew({}), "");
  EXPECT_EQ(FirstFew({"a", "b", "c"}), "a, b, c");
  EXPECT_EQ(FirstFew({"a", "b", "c", "d", "e"}), "a, b, c, 2 more");
}

TEST(TypedNameTest, QuotesOrLeavesOut) {
  EXPECT_EQ(TypedName("data/x.bin", "PATH"), "data/x.bin");
  EXPECT_EQ(TypedName("my file", "PATH"), "'my file'");
  EXPECT_EQ(TypedName("$(reboot)", "PATH"), "'$(reboot)'");
  EXPECT_EQ(TypedName("größe", "PATH"), "'größe'");
  EXPECT_EQ(TypedName("a\nb", "PATH"), "PATH");
  EXPECT_EQ(TypedName("a\u202Eb", "PATH"), "PATH");
  EXPECT_EQ(TypedName("\xff", "PATH"), "PATH");
  EXPECT_EQ(TypedName("-rf", "PATH"), "PATH");
}

}  // namespace
}  // namespace gpuctl
