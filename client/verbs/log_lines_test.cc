// Lines of a log that an expression chooses, and their times.
#include "client/verbs/log_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "client/base/exit_codes.h"
#include "client/verbs/line_pattern.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

LogLines::Options Grep(const std::string& expression, int last = -1) {
  LogLines::Options options;
  options.pattern = LinePattern::Compile(expression).value();
  options.last = last;
  return options;
}

// Returns what is printed of `text`, which comes in pieces of `size`.
std::string Chosen(LogLines::Options options, const std::string& text, size_t size) {
  std::string printed;
  LogLines lines(std::move(options), [&printed](absl::string_view part) -> absl::StatusOr<bool> {
    printed += std::string(part);
    return true;
  });
  for (size_t at = 0; at < text.size(); at += size) {
    const auto more = lines.Add(static_cast<int64_t>(at), absl::string_view(text).substr(at, size));
    EXPECT_TRUE(more.ok() && *more) << more.status();
  }
  EXPECT_OK(lines.Finish());
  return printed;
}

TEST(LogLinesTest, ThePiecesInWhichTheyComeDoNotMatter) {
  const std::string text = "loss 1\nother\nloss 2\r\n\nloss\xff 3\nloss 4";
  for (size_t size = 1; size <= text.size(); ++size) {
    EXPECT_EQ(Chosen(Grep("^loss"), text, size), "loss 1\nloss 2\r\nloss\xff 3\nloss 4\n") << size;
    EXPECT_EQ(Chosen(Grep("loss \\d$", 2), text, size), "loss 2\r\nloss 4\n") << size;
    EXPECT_EQ(Chosen(Grep("^$"), text, size), "\n") << size;
    EXPECT_EQ(Chosen(Grep("absent"), text, size), "") << size;
    EXPECT_EQ(Chosen(Grep("loss", 0), text, size), "") << size;
  }
}

TEST(LogLinesTest, EachLineHasTheLastTimeBeforeIt) {
  LogLines::Options options;
  // The stamps of metrics and of the lifecycle come one after the other.
  options.stamps = std::vector<OutputStamp>{{2000, 6}, {1000, 2}, {3000, 9}};
  const std::string zero = "1970-01-01T00:00:0";
  EXPECT_EQ(Chosen(options, "a\nb\nc\nd\ne\n", 3), "- a\n" + zero + "1.000Z b\n" + zero +
                                                       "1.000Z c\n" + zero + "2.000Z d\n" + zero +
                                                       "2.000Z e\n");
  EXPECT_EQ(TimeBefore({}, 5), 0);
}

TEST(LogLinesTest, ALineWithoutAnEndIsDividedAndKeepsItsBytes) {
  std::string text(2 * LogLines::kLongestLine + 5, 'x');
  text += "\nend\n";
  const std::string printed = Chosen(Grep("x"), text, 100'000);
  EXPECT_EQ(printed.size(), 2 * LogLines::kLongestLine + 5 + 3);
}

TEST(LogLinesTest, WhatWasDroppedEndsALine) {
  std::string printed;
  LogLines lines(Grep("a"), [&printed](absl::string_view part) -> absl::StatusOr<bool> {
    printed += std::string(part);
    return true;
  });
  ASSERT_OK(lines.Add(0, "a beg"));
  ASSERT_OK(lines.Add(1000, "in a\nb\n"));
  ASSERT_OK(lines.Finish());
  EXPECT_EQ(printed, "a beg\nin a\n");
}

TEST(LogLinesTest, AnExpressionThatNeedsTooManyStepsIsAnErrorAndNoWrongAnswer) {
  LogLines lines(Grep("^(a+)+$"), [](absl::string_view) -> absl::StatusOr<bool> { return true; });
  const auto added = lines.Add(0, "fine\n" + std::string(200, 'a') + "b\n");
  EXPECT_THAT(added.status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("at byte 5")));
  EXPECT_THAT(HintOf(added.status()), HasSubstr("simpler"));
}

TEST(LogLinesTest, WrongExpressionsAreRefused) {
  for (const char* expression : {"", "(", "[", "a{2,1}", "\\C", "(?<n>a)(?<n>b)", "*", "(?R"}) {
    EXPECT_THAT(LinePattern::Compile(expression).status(),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << expression;
  }
  EXPECT_FALSE(LinePattern::Compile(std::string(5000, 'a')).ok());
  // An expression sets no limits higher.
  auto pattern = LinePattern::Compile("(*LIMIT_MATCH=4000000000)^(a+)+$");
  ASSERT_OK(pattern);
  EXPECT_FALSE(pattern->Matches(std::string(200, 'a') + "b").ok());
}

}  // namespace
}  // namespace gpuctl
