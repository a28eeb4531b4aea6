// What the node's shell does before it runs the agent.
#include "client/link/bundle_delivery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uid_t kNobody = 65534;

// Runs the script as sshd would. Returns what it printed, and its exit code in the last line.
std::string RunIt(const std::string& script) {
  const std::string command = absl::StrCat(ShellCommand(script), " 2>&1");
  FILE* const pipe = popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  std::string said;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) said += static_cast<char>(c);
  const int status = pclose(pipe);
  return absl::StrCat(said, "exit ", WEXITSTATUS(status), "\n");
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
  std::string Run() { return RunIt(AgentScript(dir_.Sub("root"), bundle_, "bridge")); }

  TempDir dir_;
  Bundle bundle_;
};

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
