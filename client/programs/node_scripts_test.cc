// What the node's shell does before it runs the agent.
#include "client/programs/node_scripts.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/programs/publish_script.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/process/process.h"
#include "tests/support/matchers.h"
#include "tests/support/node_programs_dir.h"
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

// What the first command says, run by a shell with another `uname`.
class LookScriptTest : public ::testing::Test {
 protected:
  LookScriptTest() {
    for (const char* digest : {"one", "two"}) bundles_.emplace_back().digest = digest;
  }
  void Say(const std::string& uname) {
    dir_.Write("fake/uname", absl::StrCat("#!/bin/sh\n", uname, "\n"), 0755);
  }
  std::string Run() {
    return RunIt(absl::StrCat("PATH=", dir_.Sub("fake"), ":$PATH; echo 'M is Linux armv7l'; ",
                              LookScript(dir_.Sub("root"), bundles_, "M-77")),
                 dir_.Sub("said"));
  }
  NodeLook Look() { return ParseLook(Run(), "M-77"); }
  void Install(const std::string& digest) {
    dir_.Write("root/bin/" + digest + "/gpuctl-agent", "", 0700);
  }

  TempDir dir_;
  std::vector<Bundle> bundles_;
};

TEST_F(LookScriptTest, SaysThePlatformAndWhatIsThere) {
  Say("test \"$1\" = -sm && echo Linux aarch64");
  EXPECT_EQ(Look().uname, "Linux aarch64");
  EXPECT_THAT(Look().digests, ElementsAre());
  EXPECT_FALSE(PathExists(dir_.Sub("root"))) << "to look makes nothing";
  Install("two");
  EXPECT_THAT(Look().digests, ElementsAre("two"));
  Install("one");
  EXPECT_THAT(Look().digests, ElementsAre("one", "two"));
  bundles_.clear();
  EXPECT_THAT(Look().digests, ElementsAre());
  EXPECT_EQ(Look().uname, "Linux aarch64");
  EXPECT_THAT(Run(), HasSubstr("exit 0"));
}

TEST_F(LookScriptTest, AShellWithoutUnameOrWithANoisyOneIsRead) {
  Say("exit 1");
  EXPECT_EQ(Look().uname, "");
  Say("printf 'Darwin arm64\\r\\n'");
  EXPECT_EQ(Look().uname, "Darwin arm64");
}

TEST_F(LookScriptTest, StopsWhereAnotherUserHasAPart) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files to another user";
  Say("echo Linux x86_64");
  Install("two");
  for (const char* part : {"root", "root/bin", "root/bin/two", "root/bin/two/gpuctl-agent"}) {
    const std::string path = dir_.Sub(part);
    ASSERT_EQ(lchown(path.c_str(), kNobody, kNobody), 0);
    EXPECT_THAT(Run(), HasSubstr(absl::StrCat(path, " belongs to another user"))) << part;
    EXPECT_THAT(Run(), HasSubstr("exit 126")) << part;
    EXPECT_THAT(Look().digests, ElementsAre()) << part;
    ASSERT_EQ(lchown(path.c_str(), 0, 0), 0);
  }
}

// A hostile or odd answer.
TEST(ParseLookTest, TakesOnlyMarkedLines) {
  const NodeLook look = ParseLook(
      "Welcome\r\nM-1 is Linux x86_64\nM-77is odd\n\nM-77 is Linux aarch64\r\nM-77 has d1\r\n"
      "  M-77 has d2  \nhas d3\n",
      "M-77");
  EXPECT_EQ(look.uname, "Linux aarch64");
  EXPECT_THAT(look.digests, ElementsAre("d1", "d2"));
  EXPECT_EQ(ParseLook("", "M-77").uname, "");
}

// The client of a Mac, and any other: which bundle belongs to which answer.
TEST(NodeBundlesTest, EachPlatformHasItsBundle) {
  TempDir dir;
  WriteNodePrograms(dir.Sub("given/linux-aarch64"), NodePlatform::kLinuxAarch64);
  WriteNodePrograms(dir.Sub("prefix/libexec/gpuctl"), NodePlatform::kMacArm64);
  NodeProgramPlaces places;
  places.given = dir.Sub("given");
  places.bin_dir = dir.Sub("prefix/bin");
  NodeBundles bundles(NodePrograms::FindIn(places), dir.Sub("state"));
  const auto of = [&bundles](const char* uname) {
    return bundles.For(PlatformOfUname(uname).value());
  };
  EXPECT_EQ(of("Linux aarch64").value().agent_path, dir.Sub("given/linux-aarch64/gpuctl-agent"));
  EXPECT_EQ(of("Darwin arm64").value().agent_path, dir.Sub("prefix/libexec/gpuctl/gpuctl-agent"));
  EXPECT_NE(of("Linux aarch64").value().digest, of("Darwin arm64").value().digest);
  EXPECT_THAT(of("Linux x86_64"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("it is Linux x86_64, and there are node programs for "
                                 "linux-aarch64, macos-arm64 only")));
}

TEST(FreeKbTest, ReadsDf) {
  const std::string header = "Filesystem 1024-blocks Used Available Capacity Mounted on\n";
  EXPECT_EQ(FreeKbOf(header + "/dev/sda1 100 40 60 40% /\n"), 60);
  EXPECT_EQ(FreeKbOf(header + "a share 100 100 0 100% /mnt/50% of it\n"), 0);
  for (const char* other : {"", "\n", "df: no such file\n", "% /"}) {
    EXPECT_EQ(FreeKbOf(other), std::nullopt) << other;
  }
}

}  // namespace
}  // namespace gpuctl
