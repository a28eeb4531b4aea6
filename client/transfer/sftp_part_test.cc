#include "client/transfer/sftp_part.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

std::string Content(int64_t size) {
  std::string content(static_cast<size_t>(size), '\0');
  uint32_t state = 1;
  for (char& byte : content) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return content;
}

class SftpPartTest : public testing::Test {
 protected:
  // Downloads `content` from the part's offset up to `until`, in answers of 32 KiB. Returns that
  // offset.
  int64_t Bring(const std::string& content, size_t until) {
    auto part = SftpPart::Open(path_, static_cast<int64_t>(content.size()));
    EXPECT_OK(part);
    const int64_t begin = part->offset();
    while (static_cast<size_t>(part->offset()) < until) {
      const auto at = static_cast<size_t>(part->offset());
      EXPECT_OK(part->Append(
          absl::string_view(content).substr(at, std::min<size_t>(32 << 10, until - at))));
    }
    if (until == content.size()) {
      EXPECT_OK(part->Finish());
    }
    return begin;
  }
  std::string Here() const { return ReadFileToString(path_).value(); }

  TempDir dir_;
  const std::string path_ = dir_.Sub("part");
};

TEST_F(SftpPartTest, GoesOnBehindTheLastWholeBlock) {
  const std::string content = Content(3 * kSftpBlockBytes + 100);
  EXPECT_EQ(Bring(content, 2 * kSftpBlockBytes + 7), 0);
  EXPECT_EQ(Bring(content, content.size()), 2 * kSftpBlockBytes);
  EXPECT_TRUE(Here() == content);
  // All of it is there, so nothing is downloaded.
  EXPECT_EQ(Bring(content, content.size()), static_cast<int64_t>(content.size()));
  EXPECT_TRUE(Here() == content);
}

TEST_F(SftpPartTest, SmallAndEmptyFilesAreFoundWholeOrComeAgain) {
  const std::string content = Content(1000);
  EXPECT_EQ(Bring(content, 999), 0);
  EXPECT_EQ(Bring(content, 1000), 0);
  EXPECT_EQ(Bring(content, 1000), 1000);
  EXPECT_TRUE(Here() == content);
  EXPECT_EQ(Bring("", 0), 0);
  EXPECT_EQ(Here(), "");
}

TEST_F(SftpPartTest, WhatIsNotAsItCameComesAgain) {
  const std::string content = Content(4 * kSftpBlockBytes);
  Bring(content, 3 * kSftpBlockBytes + 5);
  std::string damaged = Here();
  damaged[kSftpBlockBytes + 3] ^= 1;
  dir_.Write("part", damaged);
  EXPECT_EQ(Bring(content, content.size()), kSftpBlockBytes);
  EXPECT_TRUE(Here() == content);
  // A power loss has removed the tail.
  dir_.Write("part", content.substr(0, 2 * kSftpBlockBytes + 9));
  EXPECT_EQ(Bring(content, content.size()), 2 * kSftpBlockBytes);
  EXPECT_TRUE(Here() == content);
  // The hashes are incomplete, or missing.
  const std::string hashes = ReadFileToString(dir_.Sub("part.blocks")).value();
  dir_.Write("part.blocks", hashes.substr(0, 50));
  EXPECT_EQ(Bring(content, content.size()), kSftpBlockBytes);
  dir_.Write("part.blocks", "");
  EXPECT_EQ(Bring(content, content.size()), 0);
  EXPECT_TRUE(Here() == content);
}

}  // namespace
}  // namespace gpuctl
