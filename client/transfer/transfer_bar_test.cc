#include "client/transfer/transfer_bar.h"

#include <gtest/gtest.h>

#include "client/terminal/line_assembler.h"

namespace gpuctl {
namespace {

TransferCount Count() {
  TransferCount count;
  count.bytes = 500;
  count.total_bytes = 1000;
  return count;
}

TEST(TransferLineTest, IsCutBetweenCharacters) {
  const std::string what = "données/世界";
  const std::string whole = TransferLine(what, Count(), absl::Seconds(1), 0);
  EXPECT_EQ(whole.substr(0, what.size()), what);
  EXPECT_EQ(TransferLine(what, Count(), absl::Seconds(1), 3), "don");
  EXPECT_EQ(TransferLine(what, Count(), absl::Seconds(1), 9), "données/");
  EXPECT_EQ(TransferLine(what, Count(), absl::Seconds(1), 10), "données/世");
  // The width counts columns, not bytes.
  EXPECT_EQ(TransferLine(what, Count(), absl::Seconds(1), DisplayWidth(whole)), whole);
}

}  // namespace
}  // namespace gpuctl
