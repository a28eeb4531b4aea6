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

TEST(MatchesPatternTest, DoubleStarsAtTheEndAreEverythingBelow) {
  EXPECT_TRUE(MatchesPattern("**", "a"));
  EXPECT_TRUE(MatchesPattern("**", "a/b/c"));
  EXPECT_TRUE(MatchesPattern("out/**", "out/a"));
  EXPECT_TRUE(MatchesPattern("out/**", "out/a/b/c"));
  EXPECT_FALSE(MatchesPattern("out/**", "out"));
  EXPECT_FALSE(MatchesPattern("out/**", "outer/a"));
  EXPECT_TRUE(MatchesPattern("*/x/**", "a/x/b/c"));
  EXPECT_TRUE(MayMatchBelow("out/**", "out/a/b"));
  EXPECT_FALSE(MayMatchBelow("out/**", "data"));
}

TEST(NamesPlaceTest, NeverWithinDoubleStars) {
  EXPECT_TRUE(NamesPlace("outputs/**", "outputs"));
  EXPECT_FALSE(NamesPlace("outputs/**", "outputs/a"));
  EXPECT_FALSE(NamesPlace("**", "a"));
  EXPECT_TRUE(NamesPlace("runs/*/ckpt-*", "runs/a"));
  EXPECT_TRUE(NamesPlace("runs/*/ckpt-*", "runs/a/ckpt-1"));
  EXPECT_FALSE(NamesPlace("runs/*/ckpt-*", "runs/a/ckpt-1/x"));
  EXPECT_FALSE(NamesPlace("runs/*/ckpt-*", "logs"));
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
