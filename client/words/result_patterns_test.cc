#include "client/words/result_patterns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(NormalizePatternsTest, GivesPatternsTheFormOfListedPaths) {
  std::vector<std::string> patterns = {"./o/ck-*", "a//b/./c", "out/", "**"};
  ASSERT_OK(NormalizePatterns("artifacts", PatternsOf::kFiles, patterns));
  EXPECT_THAT(patterns, ElementsAre("o/ck-*", "a/b/c", "out/**", "**"));
  patterns = {"./out/b-*/"};
  ASSERT_OK(NormalizePatterns("checkpoints", PatternsOf::kCheckpoints, patterns));
  EXPECT_THAT(patterns, ElementsAre("out/b-*"));
}

TEST(NormalizePatternsTest, RefusesWhatCanMatchNothing) {
  for (const char* pattern : {"", ".", "./", "/abs/*", "../x/*", "out/../e-*"}) {
    std::vector<std::string> patterns = {"good", pattern};
    const absl::Status status =
        NormalizePatterns("checkpoints", PatternsOf::kCheckpoints, patterns);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("checkpoints: ")))
        << pattern;
  }
}

}  // namespace
}  // namespace gpuctl
