// The lines of one process, out of the output of several.
#include "client/verbs/rank_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

// Returns what is printed of `text` in pieces of `size` bytes, from the byte `from` on.
std::string Of(int rank, const std::vector<OutputPart>& parts, const std::string& text, size_t size,
               int64_t begin = 0, size_t from = 0) {
  std::string printed;
  LogLines lines({}, [&printed](absl::string_view part) -> absl::StatusOr<bool> {
    printed += std::string(part);
    return true;
  });
  RankLines of_rank(rank, parts, begin, lines);
  for (size_t at = from; at < text.size(); at += size) {
    const auto more =
        of_rank.Add(static_cast<int64_t>(at), absl::string_view(text).substr(at, size));
    EXPECT_TRUE(more.ok() && *more) << more.status();
  }
  EXPECT_OK(of_rank.Finish());
  return printed;
}

TEST(RankLinesTest, EachLineHasOneOwner) {
  const std::string setup = "1| of the setup\n";
  const std::string first = "zero\n1| one\nze\n2>| two\nro\n0| 1| zero too\n1+ torn";
  const std::string second = "again\n1| uno\n";
  const std::string text = setup + first + second;
  const std::vector<OutputPart> parts = {
      {0, 1, false, false},
      {0, 1, true, false},
      {static_cast<int64_t>(setup.size()), 1, false, true},
      {static_cast<int64_t>(setup.size() + first.size()), 2, false, true}};
  for (const size_t size : {size_t{1}, size_t{3}, size_t{1000}}) {
    EXPECT_EQ(Of(0, parts, text, size), "zero\nzero\n1| zero too\nagain\n");
    EXPECT_EQ(Of(1, parts, text, size), "one\ntorn\nuno\n");
    EXPECT_EQ(Of(2, parts, text, size), "two\n");
    EXPECT_EQ(Of(3, parts, text, size), "");
    // Only lines that begin later.
    const int64_t later = static_cast<int64_t>(setup.size() + first.size());
    EXPECT_EQ(Of(0, parts, text, size, later), "again\n");
    // The output begins in the middle of a line.
    EXPECT_EQ(Of(0, parts, text, size, 0, setup.size() + 2), "zero\n1| zero too\nagain\n");
  }
}

TEST(RankLinesTest, PartsBecomeKnownWhileItIsRead) {
  std::string printed;
  LogLines lines({}, [&printed](absl::string_view part) -> absl::StatusOr<bool> {
    printed += std::string(part);
    return true;
  });
  RankLines of_rank(1, {}, 0, lines);
  EXPECT_EQ(of_rank.readable(), 0);
  // Of a setup nobody knows where it ends.
  std::vector<OutputPart> parts = {{0, 1, false, true}, {0, 1, true, false}};
  of_rank.Learn(parts);
  EXPECT_EQ(of_rank.readable(), 0);
  parts.push_back({6, 1, false, true});
  of_rank.Learn(parts);
  EXPECT_GT(of_rank.readable(), 1 << 30);
  EXPECT_OK(of_rank.Add(0, "1| no\n1| yes\n1+ half"));
  // The next attempt is told when a part of it was read.
  EXPECT_OK(of_rank.Add(21, " a\n1| line"));
  parts.push_back({24, 2, false, true});
  of_rank.Learn(parts);
  EXPECT_OK(of_rank.Add(31, " on\n"));
  EXPECT_OK(of_rank.Finish());
  EXPECT_EQ(printed, "yes\nhalf a\nline on\n");
}

}  // namespace
}  // namespace gpuctl
