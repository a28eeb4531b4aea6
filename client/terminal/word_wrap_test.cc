#include "client/terminal/word_wrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuctl {
namespace {

using ::testing::ElementsAre;

TEST(WrapAtWords, BreaksBetweenWords) {
  EXPECT_THAT(WrapAtWords("one two", 7, 2), ElementsAre("one two"));
  EXPECT_THAT(WrapAtWords("one two three", 7, 2), ElementsAre("one two", "  three"));
  EXPECT_THAT(WrapAtWords("one two three", 9, 2), ElementsAre("one two", "  three"));
  EXPECT_THAT(WrapAtWords("limits    1h, $0.30", 16, 4), ElementsAre("limits    1h,", "    $0.30"));
}

TEST(WrapAtWords, ALongWordGetsALineOfItsOwn) {
  EXPECT_THAT(WrapAtWords("a verylongword b", 6, 1), ElementsAre("a", " verylongword", " b"));
  EXPECT_THAT(WrapAtWords("    verylongword b", 9, 4), ElementsAre("    verylongword", "    b"));
}

TEST(WrapAtWords, CountsColumnsNotBytes) {
  EXPECT_THAT(WrapAtWords("änä ünü", 7, 0), ElementsAre("änä ünü"));
  EXPECT_THAT(WrapAtWords("日本 日本", 7, 0), ElementsAre("日本", "日本"));
}

TEST(WrapAtWords, WithoutAWidthNothingIsBroken) {
  EXPECT_THAT(WrapAtWords("one two three", 0, 2), ElementsAre("one two three"));
  EXPECT_THAT(WrapAtWords("one two three", 20, 10), ElementsAre("one two three"));
}

}  // namespace
}  // namespace gpuctl
