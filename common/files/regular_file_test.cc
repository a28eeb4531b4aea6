#include "common/files/regular_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "common/files/sha256.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

TEST(RegularFileTest, AnOrdinaryFileIsRead) {
  TempDir dir;
  dir.Write("a/b.txt", "content");
  EXPECT_EQ(ReadRegularFile(dir.path(), "a/b.txt", 7).value_or(""), "content");
  EXPECT_THAT(ReadRegularFile(dir.path(), "a/b.txt", 6).status(),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(Sha256HexOfRegularFile(dir.path(), "a/b.txt", 7).value_or(""), Sha256HexOf("content"));
  EXPECT_THAT(Sha256HexOfRegularFile(dir.path(), "a/b.txt", 6).status(),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(Sha256HexOfRegularFile(dir.path(), "a/b.txt", 8).status(),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(ReadRegularFile(dir.path(), "a/c.txt", 9).status(),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST(RegularFileTest, SymlinksAndDevicesAndPipesAreRefusedAtOnce) {
  TempDir dir;
  dir.Write("real/file", "content");
  ASSERT_EQ(symlink("/dev/zero", dir.Sub("zero").c_str()), 0);
  ASSERT_EQ(symlink("real", dir.Sub("by_link").c_str()), 0);
  ASSERT_EQ(symlink("real/file", dir.Sub("file").c_str()), 0);
  ASSERT_EQ(mkfifo(dir.Sub("pipe").c_str(), 0600), 0);
  for (const char* path : {"zero", "by_link/file", "file", "pipe", "real"}) {
    EXPECT_FALSE(ReadRegularFile(dir.path(), path, 100).ok()) << path;
    EXPECT_FALSE(Sha256HexOfRegularFile(dir.path(), path, 7).ok()) << path;
  }
  EXPECT_THAT(ReadRegularFile("/dev", "zero", 100).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(RegularFileTest, ADiskHasRoom) {
  EXPECT_GT(FreeBytes("/"), 0);
  EXPECT_EQ(FreeBytes("/no/such/path"), -1);
}

}  // namespace
}  // namespace gpuctl
