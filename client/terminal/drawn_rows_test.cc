#include "client/terminal/drawn_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "client/terminal/line_assembler.h"

namespace gpuctl {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class DrawnRowsTest : public ::testing::Test {
 protected:
  void Print(absl::string_view bytes) {
    lines_.Add(bytes, [this](absl::string_view line) { rows_.Add(line, Keep()); });
  }
  // The rows that passed, without blanks at their ends.
  std::vector<std::string> End() {
    if (!lines_.partial().empty()) rows_.Add(lines_.TakePartial(), Keep());
    rows_.Finish(Keep());
    return passed_;
  }
  std::function<void(absl::string_view)> Keep() {
    return [this](absl::string_view row) {
      passed_.emplace_back(absl::StripTrailingAsciiWhitespace(row));
    };
  }

  LineAssembler lines_;
  DrawnRows rows_;
  std::vector<std::string> passed_;
};

TEST_F(DrawnRowsTest, LinesPassAtOnce) {
  Print("a\n\rb 1\rb 2\nc\r\n");
  EXPECT_THAT(passed_, ElementsAre("a", "b 2", "c"));
  EXPECT_EQ(rows_.Last(), "");
}

// Printed by tqdm 4.64 for a loop in a loop; the inner bars have leave=False.
TEST_F(DrawnRowsTest, BarsThatDisappearLeaveNothing) {
  Print(
      "start\n\repoch:   0% 0/2\n\rbatch:   0% 0/3\x1b[A\n\rbatch:  33% 1/3\x1b[A"
      "\n\rbatch: 100% 3/3\x1b[A\n\r               \x1b[A\n\rbatch:   0% 0/3\x1b[A"
      "\n\rbatch:  67% 2/3\x1b[A");
  Print("\n");
  EXPECT_EQ(rows_.Last(), "batch:  67% 2/3");
  Print(
      "\rbatch: 100% 3/3\x1b[A\n\r               \x1b[A\repoch: 100% 2/2"
      "\repoch: 100% 2/2\ndone\n");
  EXPECT_THAT(End(), ElementsAre("start", "epoch:   0% 0/2", "epoch: 100% 2/2", "done"));
}

// The same with leave=True, its default.
TEST_F(DrawnRowsTest, BarsThatStayPassOnce) {
  Print(
      "start\n\repoch:   0% 0/2\n\rbatch:   0% 0/3\x1b[A\n\rbatch:  33% 1/3\x1b[A"
      "\n\rbatch: 100% 3/3\x1b[A\rbatch: 100% 3/3, 1st\n\n\rbatch:   0% 0/3\x1b[A"
      "\n\rbatch:  67% 2/3\x1b[A\n\rbatch: 100% 3/3\x1b[A\rbatch: 100% 3/3, 2nd"
      "\n\repoch: 100% 2/2\repoch: 100% 2/2\ndone\n");
  EXPECT_THAT(End(), ElementsAre("start", "epoch:   0% 0/2", "batch: 100% 3/3, 1st",
                                 "batch: 100% 3/3, 2nd", "epoch: 100% 2/2", "done"));
}

TEST_F(DrawnRowsTest, RowsPassInTheEnd) {
  Print("\x1b[A\ra\n\rb\x1b[A\n\rc");
  EXPECT_THAT(End(), ElementsAre("a", "c"));
}

TEST_F(DrawnRowsTest, MemoryIsBounded) {
  Print("x\x1b[99999999999999999999A\n");
  for (int i = 0; i < 1000; ++i) Print("\rx\n");
  EXPECT_GT(passed_.size(), 900U);
  EXPECT_THAT(End(), Each("x"));
  EXPECT_THAT(rows_.Last(), IsEmpty());
}

}  // namespace
}  // namespace gpuctl
