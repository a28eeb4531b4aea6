#include "common/files/exchange_paths.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

class ReplaceDirectoryTest : public ::testing::Test {
 protected:
  ReplaceDirectoryTest() {
    dir_.Write("to/f", "old");
    dir_.Write("from/f", "new");
  }
  ~ReplaceDirectoryTest() override { file_ops::SetFaultHook(nullptr); }
  // Makes the file system one that cannot exchange names, and renames fail from number `fail` on.
  void FailRenames(int fail) {
    renames_ = 0;
    file_ops::SetFaultHook([this, fail](file_ops::Op op, const std::string&) {
      if (op != file_ops::Op::kRename) return 0;
      const int number = renames_++;
      if (number == 0) return EINVAL;
      return number >= fail ? EIO : 0;
    });
  }
  std::string At(const std::string& name) const {
    return ReadFileToString(dir_.Sub(name)).value_or("(none)");
  }
  absl::Status Replace() { return ReplaceDirectory(dir_.Sub("from"), dir_.Sub("to")); }

  TempDir dir_;
  int renames_ = 0;
};

TEST_F(ReplaceDirectoryTest, PutsTheNewIntoThePlaceOfTheOld) {
  ASSERT_OK(Replace());
  EXPECT_EQ(At("to/f"), "new");
}

TEST_F(ReplaceDirectoryTest, WhereNamesCannotBeExchanged) {
  FailRenames(99);
  ASSERT_OK(Replace());
  EXPECT_EQ(At("to/f"), "new");
  EXPECT_EQ(dir_.Names(), std::vector<std::string>{"to"});
}

// An error there is like a crash: nobody moves the old directory back.
TEST_F(ReplaceDirectoryTest, ACrashBetweenTwoRenamesHidesNothing) {
  FailRenames(2);
  EXPECT_FALSE(Replace().ok());
  file_ops::SetFaultHook(nullptr);
  EXPECT_EQ(At("to/f"), "(none)");
  ASSERT_OK(SettleReplaced(dir_.Sub("to")));
  EXPECT_EQ(At("to/f"), "old");
  ASSERT_OK(SettleReplaced(dir_.Sub("to")));
  EXPECT_EQ(At("to/f"), "old");
  ASSERT_OK(Replace());
  EXPECT_EQ(At("to/f"), "new");
}

TEST_F(ReplaceDirectoryTest, ACrashBeforeTheOldIsRemovedLeavesNothing) {
  dir_.Write(std::string(kOlderPrefix) + "to/f", "older");
  ASSERT_OK(SettleReplaced(dir_.Sub("to")));
  EXPECT_EQ(At("to/f"), "old");
  EXPECT_FALSE(PathExists(dir_.Sub(std::string(kOlderPrefix) + "to")));
}

}  // namespace
}  // namespace gpuctl
