#include "client/ignore/git_glob.h"

#include <gtest/gtest.h>

#include <string>

namespace gpuctl {
namespace {

bool Matches(absl::string_view pattern, absl::string_view text, bool ignore_case = false) {
  return GitGlob(pattern, ignore_case).Matches(text);
}

TEST(GitGlobTest, StarsStayWithinANameUnlessTheyAreDirectories) {
  EXPECT_TRUE(Matches("a*c", "abbc"));
  EXPECT_TRUE(Matches("a*c", "ac"));
  EXPECT_FALSE(Matches("a*c", "a/c"));
  EXPECT_TRUE(Matches("**/c", "c"));
  EXPECT_TRUE(Matches("**/c", "a/b/c"));
  EXPECT_FALSE(Matches("**/c", "a/bc"));
  EXPECT_TRUE(Matches("a/**/c", "a/c"));
  EXPECT_TRUE(Matches("a/**/c", "a/x/y/c"));
  EXPECT_FALSE(Matches("a/**/c", "ac"));
  EXPECT_TRUE(Matches("a/**", "a/x/y"));
  EXPECT_FALSE(Matches("x**/c", "x/y/c"));
  EXPECT_TRUE(Matches("x**/c", "xy/c"));
  // An escaped slash is not part of "**/", so it has to be there.
  EXPECT_TRUE(Matches("**\\/c", "a/c"));
  EXPECT_FALSE(Matches("**\\/c", "c"));
}

TEST(GitGlobTest, Classes) {
  EXPECT_TRUE(Matches("[a-c]", "b"));
  EXPECT_FALSE(Matches("[!a-c]", "b"));
  EXPECT_TRUE(Matches("[^a-c]", "x"));
  EXPECT_FALSE(Matches("[^a]", "/"));
  EXPECT_TRUE(Matches("[]a]", "]"));
  EXPECT_TRUE(Matches("[a-]", "-"));
  EXPECT_TRUE(Matches("[[:digit:][:upper:]]", "Q"));
  EXPECT_TRUE(Matches("[[:a]", ":"));
  EXPECT_TRUE(Matches("[\\]]", "]"));
  EXPECT_TRUE(Matches("[\xc3-\xff]\xa9", "\xc3\xa9"));
  EXPECT_FALSE(Matches("[[:space:]]", "\v"));
}

TEST(GitGlobTest, MalformedMatchesNothing) {
  for (const char* pattern : {"[", "[a", "[]", "[!", "[[:nosuch:]]", "[[:alpha:]", "a\\", "[\\"}) {
    EXPECT_FALSE(Matches(pattern, pattern)) << pattern;
    EXPECT_FALSE(Matches(pattern, "a")) << pattern;
  }
}

TEST(GitGlobTest, CaseFoldsAsFarAsItDoesInGit) {
  EXPECT_TRUE(Matches("fo?.TXT", "FOO.txt", true));
  EXPECT_FALSE(Matches("fo?.TXT", "FOO.txt"));
  EXPECT_TRUE(Matches("[A-C]", "b", true));
  EXPECT_FALSE(Matches("[B]", "b", true));
  EXPECT_FALSE(Matches("\\B*", "b", true));
  EXPECT_TRUE(Matches("[[:upper:]]", "b", true));
}

TEST(GitGlobTest, TakesNoExponentialTime) {
  std::string pattern = "**/", text;
  for (int i = 0; i < 30; ++i) {
    pattern += i % 2 == 0 ? "*a*a" : "/**/";
    text += "aaaaaaaaaa/";
  }
  EXPECT_FALSE(Matches(pattern + "b", text));
  EXPECT_TRUE(Matches(pattern + "*", text + "aa"));
}

}  // namespace
}  // namespace gpuctl
