#include "common/base/path_pattern.h"

#include <gtest/gtest.h>

namespace gpuctl {
namespace {

TEST(MatchesPatternTest, AsInAShell) {
  EXPECT_TRUE(MatchesPattern("*.json", "a.json"));
  EXPECT_FALSE(MatchesPattern("*.json", "out/a.json"));
  EXPECT_TRUE(MatchesPattern("out/*.json", "out/a.json"));
  EXPECT_FALSE(MatchesPattern("out/*.json", "out/b/a.json"));
}

TEST(MatchesPatternTest, DoubleStarsAreAnyDirectories) {
  EXPECT_TRUE(MatchesPattern("**/*.json", "a.json"));
  EXPECT_TRUE(MatchesPattern("**/*.json", "x/y/a.json"));
  EXPECT_TRUE(MatchesPattern("out/**/*.json", "out/a.json"));
  EXPECT_TRUE(MatchesPattern("out/**/*.json", "out/x/y/a.json"));
  EXPECT_FALSE(MatchesPattern("out/**/*.json", "other/a.json"));
  EXPECT_FALSE(MatchesPattern("out/**/*.json", "outer/a.json"));
}

TEST(FixedDirectoryTest, EndsBeforeTheFirstWildcard) {
  EXPECT_EQ(FixedDirectory("outputs/checkpoint-*"), "outputs");
  EXPECT_EQ(FixedDirectory("a/b/c"), "a/b");
  EXPECT_EQ(FixedDirectory("a/b*/c"), "a");
  EXPECT_EQ(FixedDirectory("*.pt"), "");
  EXPECT_EQ(FixedDirectory("**/x"), "");
}

TEST(MayMatchBelowTest, OnlyWhereAMatchCanLie) {
  EXPECT_TRUE(MayMatchBelow("outputs/run/checkpoint-*", "outputs"));
  EXPECT_TRUE(MayMatchBelow("outputs/run/checkpoint-*", "outputs/run"));
  EXPECT_FALSE(MayMatchBelow("outputs/run/checkpoint-*", "outputs/run/logs"));
  EXPECT_FALSE(MayMatchBelow("outputs/run/checkpoint-*", "out"));
  EXPECT_FALSE(MayMatchBelow("outputs/*", "data"));
  EXPECT_TRUE(MayMatchBelow("*/checkpoint-*", "data"));
  EXPECT_FALSE(MayMatchBelow("*/checkpoint-*", "data/deep"));
  EXPECT_TRUE(MayMatchBelow("outputs/**/best", "outputs/a/b/c"));
  EXPECT_FALSE(MayMatchBelow("outputs/**/best", "data"));
}

}  // namespace
}  // namespace gpuctl
