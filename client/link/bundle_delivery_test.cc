// What the node's shell does before it runs the agent.
#include "client/link/bundle_delivery.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/publish_script.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/process/process.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uid_t kNobody = 65534;

// Runs the script as sshd would. Returns what it printed, and its exit code in the last line.
std::string RunIt(const std::string& script, const std::string& output) {
  const UniqueFd out(open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  SpawnOptions options;
  options.argv = {"/bin/sh", "-c", ShellCommand(script)};
  options.stdout_fd = options.stderr_fd = out.get();
  const absl::StatusOr<pid_t> pid = Spawn(options);
  EXPECT_OK(pid);
  int status = -1;
  EXPECT_EQ(waitpid(pid.value_or(-1), &status, 0), pid.value_or(0));
  return absl::StrCat(ReadFileToString(output).value_or(""), "exit ", WEXITSTATUS(status), "\n");
}

class AgentScriptTest : public ::testing::Test {
 protected:
  AgentScriptTest() {
    bundle_.digest = "0123abcd";
    EXPECT_OK(MakeDirectories(dir_.Sub("root/bin/0123abcd"), 0700));
    Write("gpuctl-agent");
    Write("gpuctl-shim");
  }
  void Write(const std::string& name) {
    const std::string path = dir_.Sub("root/bin/0123abcd/" + name);
    EXPECT_OK(WriteFileAtomic(path, "#!/bin/sh\necho \"ran $*\"\n"));
    EXPECT_EQ(chmod(path.c_str(), 0700), 0);
  }
  std::string Run() {
    return RunIt(AgentScript(dir_.Sub("root"), bundle_, "bridge"), dir_.Sub("said"));
  }

  TempDir dir_;
  Bundle bundle_;
};

class PublishScriptTest : public ::testing::Test {
 protected:
  PublishScriptTest() { dir_.Write("bin/.partial-0123/gpuctl-agent", "ours"); }
  std::string Run(const std::string& before = "") {
    return RunIt(before + PublishScript(dir_.Sub("bin/.partial-0123"), dir_.Sub("bin/abcd")),
                 dir_.Sub("said"));
  }
  std::vector<std::string> Names(const std::string& path) {
    return ListDirectory(dir_.Sub(path)).value();
  }
  TempDir dir_;
};

TEST_F(PublishScriptTest, MakesTheDirectory) {
  EXPECT_EQ(Run(), "exit 0\n");
  EXPECT_THAT(Names("bin"), ElementsAre("abcd"));
  EXPECT_THAT(Names("bin/abcd"), ElementsAre("gpuctl-agent"));
}

TEST_F(PublishScriptTest, LeavesAnothersDirectoryAsItIs) {
  dir_.Write("bin/abcd/theirs", "");
  EXPECT_EQ(Run(), "exit 0\n");
  EXPECT_THAT(Names("bin"), ElementsAre("abcd"));
  EXPECT_THAT(Names("bin/abcd"), ElementsAre("theirs"));
}

TEST_F(PublishScriptTest, LeavesNothingInADirectoryThatAppearsMeanwhile) {
  // Another client makes the directory right before mv.
  EXPECT_EQ(Run(absl::StrCat("mv() { mkdir ", dir_.Sub("bin/abcd"), "; touch ",
                             dir_.Sub("bin/abcd/theirs"), "; command mv \"$@\"; }; ")),
            "exit 0\n");
  EXPECT_THAT(Names("bin"), ElementsAre("abcd"));
  EXPECT_THAT(Names("bin/abcd"), ElementsAre("theirs"));
}

TEST_F(AgentScriptTest, RunsTheBundlesAgent) {
  EXPECT_EQ(Run(), absl::StrCat("ran bridge --root ", dir_.Sub("root"), "\nexit 0\n"));
  bundle_.digest = "none";
  EXPECT_THAT(Run(), HasSubstr("exit 127"));
}

TEST_F(AgentScriptTest, RunsNothingOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files to another user";
  for (const char* part : {"root", "root/bin", "root/bin/0123abcd",
                           "root/bin/0123abcd/gpuctl-agent", "root/bin/0123abcd/gpuctl-shim"}) {
    const std::string path = dir_.Sub(part);
    ASSERT_EQ(lchown(path.c_str(), kNobody, kNobody), 0);
    const std::string said = Run();
    EXPECT_THAT(said, HasSubstr(absl::StrCat(path, " belongs to another user"))) << part;
    EXPECT_THAT(said, HasSubstr("exit 126")) << part;
    EXPECT_THAT(said, Not(HasSubstr("ran"))) << part;
    ASSERT_EQ(lchown(path.c_str(), 0, 0), 0);
  }
  EXPECT_THAT(Run(), HasSubstr("exit 0"));
}

}  // namespace
}  // namespace gpuctl
