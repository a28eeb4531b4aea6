#include "agent/server_note.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "agent/base/processes.h"
#include "common/base/api_level.h"
#include "common/files/files.h"
#include "common/process/process.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

class ServerNoteTest : public ::testing::Test {
 protected:
  ServerNoteTest() : paths_(dir_.path()) { EXPECT_OK(MakeDirectories(dir_.Sub("node"))); }

  void Write(pid_t pid, int64_t start_time, int level) {
    const nlohmann::json json = {
        {"pid", pid}, {"start_time", start_time}, {"api_level", level}, {"bundle", "/bin"}};
    ASSERT_OK(WriteFileAtomic(paths_.server_note, json.dump()));
  }

  TempDir dir_;
  RootPaths paths_;
  const pid_t self_ = getpid();
  const int64_t started_ = IdentityOf(getpid()).start_time_ticks;
};

TEST_F(ServerNoteTest, AServerSaysItsLevelAndBundle) {
  ASSERT_OK(WriteServerNote(paths_, "/root/.gpuctl/bin/0123"));
  EXPECT_EQ(LevelOfServer(paths_, self_), kApiLevel);
  const auto json = nlohmann::json::parse(ReadFileToString(paths_.server_note).value());
  EXPECT_EQ(json, (nlohmann::json{{"pid", self_},
                                  {"start_time", started_},
                                  {"api_level", kApiLevel},
                                  {"bundle", "/root/.gpuctl/bin/0123"}}));
}

// The program that /proc shows is this test, or an emulator: no bundle is beside it.
TEST_F(ServerNoteTest, TheNoteDecidesAndNotTheProgram) {
  Write(self_, started_, 7);
  EXPECT_EQ(LevelOfServer(paths_, self_), 7);
  // An emulated process calculates its own start time.
  Write(self_, started_ + 3, 7);
  EXPECT_EQ(LevelOfServer(paths_, self_), 7);
}

TEST_F(ServerNoteTest, TheNoteOfAnotherProcessSaysNothing) {
  Write(self_ + 1, started_, 7);
  EXPECT_EQ(LevelOfServer(paths_, self_), 1);
  // The same pid, used again.
  Write(self_, started_ - 1'000'000'000, 7);
  EXPECT_EQ(LevelOfServer(paths_, self_), 1);
}

TEST_F(ServerNoteTest, AServerInAnotherNamespaceIsBelieved) {
  Write(self_ + 1, started_, 7);
  EXPECT_EQ(LevelOfServer(paths_, 0), 7);
}

TEST_F(ServerNoteTest, WithoutANoteOrWithNonsenseItIsTheLowest) {
  EXPECT_EQ(LevelOfServer(paths_, self_), 1);
  EXPECT_EQ(LevelOfServer(paths_, 0), 1);
  for (const char* text : {"", "[]", "{}", "{\"pid\":\"x\"}", "{\"pid\":1,\"start_time\":2}"}) {
    ASSERT_OK(WriteFileAtomic(paths_.server_note, text));
    EXPECT_EQ(LevelOfServer(paths_, self_), 1) << text;
  }
}

#if defined(__linux__)
// A server that is older than the note, from a bundle that says its level.
TEST_F(ServerNoteTest, AnOlderServersLevelIsThatOfItsBundle) {
  const std::string program = dir_.Write(
      "bin/0123/server", ReadFileToString("/bin/sleep", int64_t{16} << 20).value(), 0755);
  dir_.Write("bin/0123/api_level", "5\n");
  SpawnOptions options;
  options.argv = {program, "60"};
  const auto pid = Spawn(options);
  ASSERT_OK(pid);
  EXPECT_EQ(LevelOfServer(paths_, *pid), 5);
  kill(*pid, SIGKILL);
  waitpid(*pid, nullptr, 0);
}
#endif

}  // namespace
}  // namespace gpuctl
