#include "common/files/part_writer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <random>
#include <string>

#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

std::string RandomBytes(size_t size) {
  std::mt19937_64 random(7);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// Writes `content` from `offset` on in pieces of `step` bytes. Returns the file's bytes.
std::string Written(const std::string& dir, const std::string& content, int64_t offset, size_t step,
                    bool uncached) {
  const std::string path = JoinPath(dir, "f");
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  PartWriter writer;
  writer.Begin(fd.get(), offset, uncached, "f");
  for (size_t at = 0; at < content.size(); at += step) {
    EXPECT_OK(writer.Append(absl::string_view(content).substr(at, step)));
  }
  EXPECT_OK(writer.Flush());
#if defined(O_DIRECT)
  // The next writer of the descriptor is not affected.
  EXPECT_EQ(fcntl(fd.get(), F_GETFL) & O_DIRECT, 0);
#endif
  return ReadFileToString(path).value_or("");
}

TEST(PartWriter, WritesTheSamePastThePageCache) {
  TempDir dir;
  const std::string content = RandomBytes((2 << 20) + 4096 + 17);
  for (const bool uncached : {false, true}) {
    for (const size_t step : {size_t{4096}, size_t{100'003}, size_t{256 << 10}, content.size()}) {
      EXPECT_TRUE(Written(dir.path(), content, 0, step, uncached) == content) << step;
    }
    for (const int64_t offset : {4096, 4097}) {
      EXPECT_TRUE(Written(dir.path(), content, offset, 65'536, uncached) ==
                  std::string(static_cast<size_t>(offset), '\0') + content)
          << offset;
    }
  }
  EXPECT_EQ(Written(dir.path(), "few", 0, 1, true), "few");
  EXPECT_EQ(Written(dir.path(), "", 0, 1, true), "");
}

TEST(PartWriter, FileSystemsThatWantAnotherAlignmentGetTheBytesAllTheSame) {
  TempDir dir;
  const std::string content = RandomBytes(3 << 20);
  int writes = 0;
  file_ops::SetFaultHook([&](file_ops::Op op, const std::string&) {
    if (op != file_ops::Op::kWrite) return 0;
    // A disk with larger sectors would refuse the second block like this.
    return ++writes == 2 ? EINVAL : 0;
  });
  const std::string written = Written(dir.path(), content, 0, 100'003, true);
  file_ops::SetFaultHook({});
  EXPECT_GE(writes, 3);
  EXPECT_TRUE(written == content);
}

TEST(PartWriter, TellsThatTheDiskIsFull) {
  TempDir dir;
  const UniqueFd fd(open(dir.Sub("f").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  PartWriter writer;
  writer.Begin(fd.get(), 0, true, "weights");
  file_ops::SetFaultHook(
      [](file_ops::Op op, const std::string&) { return op == file_ops::Op::kWrite ? ENOSPC : 0; });
  const absl::Status status = writer.Append(std::string(1 << 20, 'x'));
  file_ops::SetFaultHook({});
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kResourceExhausted, testing::HasSubstr("weights")));
}

}  // namespace
}  // namespace gpuctl
