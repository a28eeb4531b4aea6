#include "client/workdir/work_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

using testing::ElementsAre;

constexpr int64_t kMB = 1'000'000;

std::vector<std::string> Paths(const WorkSize& size) {
  std::vector<std::string> paths;
  for (const WorkSize::Offender& offender : size.Largest()) paths.push_back(offender.path);
  return paths;
}

TEST(WorkSizeTest, NamesThePlacesWhereTheBytesAre) {
  WorkSize size;
  size.Add("train.py", 1000);
  for (int i = 0; i < 12; ++i) size.Add(absl::StrCat("data/raw/2024/", i), 100 * kMB);
  size.Add("data/index", kMB);
  size.Add("models/base/weights.bin", 700 * kMB);
  size.Add("models/base/config.json", 10);
  size.Add("big.bin", 300 * kMB);
  for (int i = 0; i < 500; ++i) size.Add(absl::StrCat("src/", i, ".py"), 1000);
  EXPECT_TRUE(size.IsLarge());
  EXPECT_EQ(size.files(), 517);
  EXPECT_THAT(Paths(size), ElementsAre("data/raw/2024/", "models/base/weights.bin", "big.bin"));
  EXPECT_EQ(size.Describe(),
            "2.20 GB in 517 files; the largest: data/raw/2024/ (1.20 GB in 12 files), "
            "models/base/weights.bin (700 MB), big.bin (300 MB)");
}

TEST(WorkSizeTest, NamesThePlacesWhereTheFilesAre) {
  WorkSize size;
  for (int i = 0; i < 9'000; ++i) size.Add(absl::StrCat("node_modules/p", i % 7, "/", i), 100);
  for (int i = 0; i < 2'000; ++i) size.Add(absl::StrCat("venv/lib/python3/site/", i), 100);
  size.Add("big.bin", 900 * kMB);
  EXPECT_TRUE(size.IsLarge());
  EXPECT_THAT(Paths(size), ElementsAre("node_modules/", "venv/lib/python3/site/", "big.bin"));
}

TEST(WorkSizeTest, LimitsAreWhatMayPass) {
  WorkSize bytes;
  EXPECT_EQ(bytes.Describe(), "0 B in 0 files");
  bytes.Add("a", kMaxUnaskedBytes);
  EXPECT_FALSE(bytes.IsLarge());
  bytes.Add("b", 1);
  EXPECT_TRUE(bytes.IsLarge());
  WorkSize files;
  for (int64_t i = 0; i < kMaxUnaskedFiles; ++i) files.Add("a/b", 0);
  EXPECT_FALSE(files.IsLarge());
  files.Add("a", 0);
  EXPECT_TRUE(files.IsLarge());
}

TEST(WorkSizeTest, ManyDirectoriesCountForThoseAboveThem) {
  WorkSize size;
  for (int i = 0; i < 50'000; ++i) size.Add(absl::StrCat("many/", i, "/x"), 10);
  size.Add("many/late/x", 2000 * kMB);
  const std::vector<WorkSize::Offender> largest = size.Largest();
  ASSERT_EQ(largest.size(), 1U);
  EXPECT_EQ(largest[0].path, "many/late/x");
  EXPECT_EQ(size.files(), 50'001);
}

}  // namespace
}  // namespace gpuctl
