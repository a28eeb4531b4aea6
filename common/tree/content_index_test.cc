#include "common/tree/content_index.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/matchers.h"
#include "tests/support/transfer_peers.h"

namespace gpuctl {
namespace {

TEST(ContentIndex, FindsWhatIsStillMissing) {
  const Manifest manifest =
      ManifestOf({FileOf("a", "x"), FileOf("b", "y"), FileOf("c", "x"), FileOf("d", "x")});
  MissingContent missing = MissingContent::AllOf(manifest);
  missing.RemoveFile(2);
  ContentIndex index(manifest, missing);
  EXPECT_FALSE(index.empty());
  EXPECT_EQ(index.Next(FileOf("anywhere", "x")), 0);
  EXPECT_EQ(index.Next(FileOf("anywhere", "x"), 0), 3);
  EXPECT_EQ(index.Next(FileOf("anywhere", "x"), 3), -1);
  EXPECT_EQ(index.Next(FileOf("anywhere", "y")), 1);
  EXPECT_EQ(index.Next(FileOf("anywhere", "y"), 1), -1);
  EXPECT_EQ(index.Next(FileOf("anywhere", "z")), -1);
  missing.RemoveFile(0);
  EXPECT_EQ(index.Next(FileOf("anywhere", "x")), 3);
  missing.RemoveFile(3);
  EXPECT_EQ(index.Next(FileOf("anywhere", "x")), -1);
  EXPECT_EQ(index.Next(FileOf("anywhere", "y")), 1);
  // The same hash with another size does not match.
  gpuctl::v1::FileEntry longer = FileOf("anywhere", "y");
  longer.set_size(2);
  EXPECT_EQ(index.Next(longer), -1);
}

TEST(ContentIndex, CopiesOfOneContentCostNoMoreThanDifferentFiles) {
  constexpr int kCopies = 20'000;
  Manifest manifest;
  for (int i = 0; i < kCopies; ++i) manifest.Append(FileOf(absl::StrCat(100'000 + i), "same"));
  MissingContent missing = MissingContent::AllOf(manifest);
  ContentIndex index(manifest, missing);
  // Each entry is found once and filled, then the same number of searches find nothing.
  for (int i = 0; i < 2 * kCopies; ++i) {
    const int64_t found = index.Next(manifest[0]);
    EXPECT_EQ(found, i < kCopies ? i : -1);
    if (found >= 0) missing.RemoveFile(found);
  }
  EXPECT_LE(index.steps(), 3 * kCopies);
}

}  // namespace
}  // namespace gpuctl
