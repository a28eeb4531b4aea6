#include "client/verbs/log_offsets.h"

#include <gtest/gtest.h>

#include "client/show/shown_range.h"
#include "client/terminal/table.h"

namespace gpuctl {
namespace {

int64_t LastLines(const std::string& text, int lines, int64_t begin = 0) {
  return *OffsetOfLastLines(begin, static_cast<int64_t>(text.size()), lines,
                            [&text](int64_t from, int64_t to) -> absl::StatusOr<std::string> {
                              return text.substr(static_cast<size_t>(from),
                                                 static_cast<size_t>(to - from));
                            });
}

TEST(OffsetOfLastLinesTest, CountsFromTheEnd) {
  EXPECT_EQ(LastLines("a\nb\nc\n", 1), 4);
  EXPECT_EQ(LastLines("a\nb\nc\n", 2), 2);
  EXPECT_EQ(LastLines("a\nb\nc\n", 9), 0);
  EXPECT_EQ(LastLines("a\nb\nunfinished", 1), 4);
  EXPECT_EQ(LastLines("a\nb\n", 0), 4);
  EXPECT_EQ(LastLines("", 3), 0);
  EXPECT_EQ(LastLines("a\nb\nc\n", 9, 2), 2);
}

TEST(OffsetOfLastLinesTest, ReadsInBlocks) {
  const std::string line = std::string(999, 'x') + "\n";
  std::string text;
  for (int i = 0; i < 1000; ++i) text += line;
  EXPECT_EQ(LastLines(text, 500), 500'000);
}

TEST(OffsetAtTest, TakesTheNewestStampThatIsOldEnough) {
  const std::vector<OutputStamp> stamps = {{100, 0}, {200, 50}, {300, 90}};
  EXPECT_EQ(OffsetAt(stamps, 50), 0);
  EXPECT_EQ(OffsetAt(stamps, 250), 50);
  EXPECT_EQ(OffsetAt(stamps, 900), 90);
}

TEST(ShownRangeTest, ShowsEachByteOnceAndInOrder) {
  ShownRange shown(10);
  int64_t skipped = 0;
  EXPECT_EQ(shown.Take(0, "0123456789", skipped), "");
  EXPECT_EQ(shown.Take(5, "56789ABC", skipped), "ABC");
  EXPECT_EQ(shown.Take(10, "ABC", skipped), "");
  EXPECT_EQ(skipped, 0);
  // The node sent the tail first. Output that is filled in before the shown offset is not shown.
  EXPECT_EQ(shown.Take(20, "KL", skipped), "KL");
  EXPECT_EQ(skipped, 7);
  EXPECT_EQ(shown.Take(13, "DEFGHIJKLM", skipped), "M");
  EXPECT_EQ(skipped, 0);
  EXPECT_EQ(shown.next(), 23);
}

TEST(FormatTableTest, AlignsByWidth) {
  EXPECT_EQ(FormatTable({{"A", "B", "C"}, {"世界", "x", "y z"}}), "A     B  C\n世界  x  y z\n");
  EXPECT_EQ(FormatTable({{"a", "", ""}}), "a\n");
}

TEST(FormatTableTest, GivesUpWholeColumnsWhereTheTerminalIsNarrow) {
  const std::vector<TableRow> rows = {{"NAME", "LOSS", "STOPS", "COMMAND"},
                                      {"one", "0.5", "in 9m 51s", "bash job.sh 1000"}};
  const std::vector<std::string> least = {"COMMAND", "LOSS"};
  EXPECT_EQ(FormatTableWithin(rows, 80, least), FormatTable(rows));
  EXPECT_EQ(FormatTableWithin(rows, 30, least),
            "NAME  LOSS  STOPS      COMMAND\none   0.5   in 9m 51s  bash jo\n");
  EXPECT_EQ(FormatTableWithin(rows, 24, least), "NAME  LOSS  STOPS\none   0.5   in 9m 51s\n");
  EXPECT_EQ(FormatTableWithin(rows, 20, least), "NAME  STOPS\none   in 9m 51s\n");
  EXPECT_EQ(FormatTableWithin(rows, 9, least), "NAME  STO\none   in \n");
}

TEST(FormatTableTest, BreaksTheLastColumnBetweenWords) {
  const std::string why = "one runs at a time on each machine";
  const std::vector<TableRow> rows = {{"ENTRY", "STATE", "WHY"},
                                      {"a-1", "running", "-"},
                                      {"a-2", "waiting", why},
                                      {"a-3", "waiting", why}};
  const std::vector<std::string> least = {"STATE"};
  EXPECT_EQ(FormatTableWrapped(rows, 80, least), FormatTable(rows));
  EXPECT_EQ(FormatTableWrapped(rows, 42, least),
            "ENTRY  STATE    WHY\n"
            "a-1    running  -\n"
            "a-2    waiting  one runs at a time on each\n"
            "                machine\n"
            "a-3    waiting  as above\n");
  // The least column goes first; where there is no room beside the others, the line below has it.
  EXPECT_EQ(FormatTableWrapped(rows, 34, least),
            "ENTRY  WHY\na-1    -\na-2    one runs at a time on each\n       machine\na-3    as "
            "above\n");
  EXPECT_EQ(
      FormatTableWrapped(rows, 24, least),
      "ENTRY  WHY\na-1    -\na-2\n  one runs at a time on\n  each machine\na-3    as above\n");
}

TEST(FormatTableTest, AWordThatIsLongerThanALineGoesOnInTheNextOne) {
  const std::vector<TableRow> rows = {{"RUN", "WHY"},
                                      {"a-1", "see /home/ada/a/very/long/path/that/ends/here now"}};
  EXPECT_EQ(FormatTableWrapped(rows, 25, {}),
            "RUN  WHY\n"
            "a-1\n"
            "  see\n"
            "  /home/ada/a/very/long/p\n"
            "  ath/that/ends/here\n"
            "  now\n");
}

}  // namespace
}  // namespace gpuctl
