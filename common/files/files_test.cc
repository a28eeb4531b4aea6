#include "common/files/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FilesTest : public ::testing::Test {
 protected:
  void TearDown() override { file_ops::SetFaultHook(nullptr); }
  std::string Path(absl::string_view name) const { return JoinPath(dir_.path(), name); }
  TempDir dir_;
};

TEST(PathTest, JoinDirBase) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(DirName("/a/b"), "/a");
  EXPECT_EQ(DirName("/a"), "/");
  EXPECT_EQ(DirName("a"), ".");
  EXPECT_EQ(BaseName("/a/b"), "b");
  EXPECT_EQ(BaseName("b"), "b");
}

TEST_F(FilesTest, ReadStopsAtItsLimit) {
  ASSERT_OK(WriteFileAtomic(Path("f"), std::string(1000, 'x')));
  EXPECT_EQ(ReadFileToString(Path("f"), 1000)->size(), 1000u);
  EXPECT_TRUE(absl::IsResourceExhausted(ReadFileToString(Path("f"), 999).status()));
  EXPECT_TRUE(absl::IsNotFound(ReadFileToString(Path("none")).status()));
}

TEST_F(FilesTest, AtomicWriteReplacesAndSetsTheMode) {
  ASSERT_OK(WriteFileAtomic(Path("f"), "old"));
  ASSERT_OK(WriteFileAtomic(Path("f"), "new", 0640));
  EXPECT_EQ(*ReadFileToString(Path("f")), "new");
  struct stat info {};
  ASSERT_EQ(stat(Path("f").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u & ~022u);
}

// After any failed operation readers see the old contents or the new, and no other file is left.
TEST_F(FilesTest, AtomicWriteIsAtomicUnderEveryFault) {
  bool reached = true;
  for (int n = 0; reached; ++n) {
    file_ops::SetFaultHook(nullptr);
    ASSERT_OK(WriteFileAtomic(Path("f"), "old"));
    int count = 0;
    file_ops::SetFaultHook(
        [&](file_ops::Op, const std::string&) { return count++ == n ? EIO : 0; });
    const absl::Status status = WriteFileAtomic(Path("f"), "new");
    reached = count > n;
    file_ops::SetFaultHook(nullptr);
    const std::string contents = *ReadFileToString(Path("f"));
    EXPECT_TRUE(contents == "old" || contents == "new");
    EXPECT_TRUE(!status.ok() || contents == "new");
    EXPECT_TRUE(!status.ok() || !reached) << "operation " << n;
    EXPECT_THAT(*ListDirectory(dir_.path()), ElementsAre("f"));
  }
}

TEST_F(FilesTest, ErrorsNameTheFileAndTheCause) {
  const absl::Status status = WriteFileAtomic(Path("no/such/f"), "x");
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("no/such/f"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("No such file"));
}

TEST_F(FilesTest, MakeDirectoriesMakesParentsAndAcceptsWhatIsThere) {
  ASSERT_OK(MakeDirectories(Path("a/b/c")));
  ASSERT_OK(MakeDirectories(Path("a/b/c")));
  EXPECT_TRUE(IsDirectory(Path("a/b/c")));
  ASSERT_OK(WriteFileAtomic(Path("file"), ""));
  EXPECT_FALSE(MakeDirectories(Path("file")).ok());
  EXPECT_FALSE(MakeDirectories(Path("file/under")).ok());
}

TEST_F(FilesTest, RemoveTreeDoesNotFollowLinks) {
  ASSERT_OK(MakeDirectories(Path("keep")));
  ASSERT_OK(WriteFileAtomic(Path("keep/f"), "x"));
  ASSERT_OK(MakeDirectories(Path("tree/sub")));
  ASSERT_OK(WriteFileAtomic(Path("tree/sub/g"), "x"));
  ASSERT_EQ(symlink(Path("keep").c_str(), Path("tree/link").c_str()), 0);
  ASSERT_EQ(chmod(Path("tree/sub").c_str(), 0500), 0);
  ASSERT_OK(RemoveTree(Path("tree")));
  EXPECT_FALSE(PathExists(Path("tree")));
  EXPECT_TRUE(PathExists(Path("keep/f")));
  ASSERT_OK(RemoveTree(Path("tree")));
}

TEST_F(FilesTest, DescriptorsAreNotInherited) {
  UniqueFd fd(file_ops::Open(Path("f"), O_RDWR | O_CREAT));
  ASSERT_TRUE(fd.valid());
  EXPECT_NE(fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(FilesTest, TheHookFailsWhatItNames) {
  file_ops::SetFaultHook([&](file_ops::Op op, const std::string& path) {
    return op == file_ops::Op::kUnlink && path == Path("f") ? EROFS : 0;
  });
  ASSERT_OK(WriteFileAtomic(Path("f"), "x"));
  EXPECT_EQ(file_ops::Unlink(Path("f")), -1);
  EXPECT_EQ(errno, EROFS);
  EXPECT_TRUE(PathExists(Path("f")));
}

}  // namespace
}  // namespace gpuctl
