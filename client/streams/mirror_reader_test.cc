#include "client/streams/mirror_reader.h"

#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

std::string LossLine(int step, double loss) {
  return absl::StrCat("{'loss': ", loss, ", 'step': ", step, "}\n");
}

void Append(const TempDir& mirror, const std::string& bytes) {
  ASSERT_TRUE(MakeDirectories(mirror.Sub("output")).ok());
  std::ofstream(mirror.Sub("output/00000000000000000000"), std::ios::app) << bytes;
}

TEST(MirrorReaderTest, FindsNumbersInOutput) {
  TempDir mirror;
  MirrorReader reader(mirror.path(), 0);
  EXPECT_TRUE(reader.RefreshOutputMetrics().ok());
  Append(mirror, LossLine(1, 4.0));
  EXPECT_TRUE(reader.RefreshOutputMetrics().ok());
  Append(mirror, LossLine(2, 3.0));
  EXPECT_TRUE(reader.RefreshOutputMetrics().ok());
  EXPECT_EQ(reader.progress().losses().size(), 2u);
  EXPECT_EQ(reader.progress().step(), 2);
}

// Otherwise the screen would stand still while a mirror fills with gigabytes.
TEST(MirrorReaderTest, DoesNotReadAllThatAMirrorFillsWith) {
  TempDir mirror;
  MirrorReader reader(mirror.path(), 0);
  Append(mirror, LossLine(1, 4.0));
  EXPECT_TRUE(reader.RefreshOutputMetrics().ok());
  Append(mirror, absl::StrCat(LossLine(2, 3.0), std::string(8 << 20, '\n'), LossLine(3, 2.0)));
  EXPECT_TRUE(reader.RefreshOutputMetrics().ok());
  EXPECT_EQ(reader.progress().step(), 3);
  ASSERT_EQ(reader.progress().losses().size(), 2u);
  EXPECT_EQ(reader.progress().losses()[1].x, 3);
}

TEST(MirrorReaderTest, ReadsMetricsInStepsForCallersThatHearSignals) {
  TempDir mirror;
  const std::string line = "{\"step\":1,\"loss\":1.0,\"pad\":\"" + std::string(1000, 'x') + "\"}\n";
  {
    std::ofstream metrics(mirror.Sub("metrics.jsonl"));
    for (int i = 0; i < 9000; ++i) metrics << line;
  }
  MirrorReader reader(mirror.path(), 0);
  int steps = 0;
  while (true) {
    const absl::StatusOr<bool> more = reader.RefreshSome();
    ASSERT_TRUE(more.ok());
    ++steps;
    if (!*more) break;
  }
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(reader.progress().step(), 1);
}

}  // namespace
}  // namespace gpuctl
