#include "client/keep/keep_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

class KeepLogTest : public ::testing::Test {
 protected:
  std::string Read(const std::string& name) {
    return ReadFileToString(dir_.Sub(name)).value_or("");
  }
  const TempDir dir_;
};

TEST_F(KeepLogTest, ADeedIsOneLine) {
  KeepLog log(dir_.path());
  ASSERT_OK(log.Deed(1000, "reap", "vast/7", "ended\nit cost $1.20"));
  EXPECT_EQ(Read("keep.log"), "1970-01-01T00:00:01.000Z reap vast/7: ended it cost $1.20\n");
}

TEST_F(KeepLogTest, AFailureIsToldOnceAndAgainWhenItChanges) {
  const auto pass = [this](const std::string& why) {
    KeepLog log(dir_.path());
    if (!why.empty()) {
      ASSERT_OK(log.Failure(1000, "reap", "vast", why));
    }
    log.LookedAtAll({});
    ASSERT_OK(log.Finish(0, 0, why.empty() ? 0 : 1));
  };
  for (const char* why : {"no key", "no key", "refused", "", "refused"}) pass(why);
  EXPECT_EQ(Read("keep.log"),
            "1970-01-01T00:00:01.000Z reap vast: FAILED: no key\n"
            "1970-01-01T00:00:01.000Z reap vast: FAILED: refused\n"
            "1970-01-01T00:00:01.000Z reap vast: FAILED: refused\n");
}

TEST_F(KeepLogTest, AnInterruptedPassForgetsNothing) {
  {
    KeepLog log(dir_.path());
    log.NoteHome("r-1");
    log.NoteSaved("r-2", 5000);
    ASSERT_OK(log.Failure(1000, "pull", "cat-3", "no disk"));
    log.LookedAtAll({"r-1", "r-2", "r-3"});
    ASSERT_OK(log.Finish(0, 0, 1));
  }
  {
    KeepLog log(dir_.path());
    ASSERT_OK(log.Finish(0, 0, 130));
  }
  KeepLog log(dir_.path());
  EXPECT_TRUE(log.IsHome("r-1"));
  EXPECT_EQ(log.SavedAt("r-2"), 5000);
  ASSERT_OK(log.Failure(2000, "pull", "cat-3", "no disk"));
  EXPECT_EQ(Read("keep.log"), "1970-01-01T00:00:01.000Z pull cat-3: FAILED: no disk\n");
  // Runs that are in the list no more are forgotten.
  log.LookedAtAll({"r-2"});
  ASSERT_OK(log.Finish(0, 0, 0));
  EXPECT_FALSE(KeepLog(dir_.path()).IsHome("r-1"));
  EXPECT_EQ(KeepLog(dir_.path()).SavedAt("r-2"), 5000);
}

TEST_F(KeepLogTest, AFullLogBecomesTheOldOne) {
  dir_.Write("keep.log.1", "older\n");
  dir_.Write("keep.log", std::string(kMaxKeepLogBytes, 'x'));
  KeepLog log(dir_.path());
  ASSERT_OK(log.Deed(1000, "reap", "a", "b"));
  EXPECT_EQ(Read("keep.log.1").size(), static_cast<size_t>(kMaxKeepLogBytes));
  EXPECT_EQ(Read("keep.log"), "1970-01-01T00:00:01.000Z reap a: b\n");
}

TEST_F(KeepLogTest, APassWithoutDeedsWritesNoLog) {
  dir_.Write("keep.json", "not json");
  KeepLog log(dir_.path());
  ASSERT_OK(log.Finish(0, 1000, 0));
  EXPECT_FALSE(PathExists(dir_.Sub("keep.log")));
  EXPECT_THAT(Read("keep.json"), ::testing::HasSubstr("\"exit_code\": 0"));
}

}  // namespace
}  // namespace gpuctl
