// Nodes of another system or processor: an sshd here that says what they would say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/base/exit_codes.h"
#include "client/base/host_keys.h"
#include "client/link/agent_calls.h"
#include "client/link/link.h"
#include "client/programs/bundle_delivery.h"
#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/job/job_layout.h"
#include "common/process/process.h"
#include "tests/support/loopback_node.h"
#include "tests/support/matchers.h"
#include "tests/support/node_programs_dir.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class PlatformTest : public ::testing::Test {
 protected:
  PlatformTest() : options_(node_.Options()) {
    options_.programs = NodePrograms();
    options_.dial = [this] { return DialLocalSshd(sshd_); };
  }

  // From now on `uname -sm` there prints `answer`.
  void Say(const std::string& answer) {
    node_.dir().Write("fake/uname", absl::StrCat("#!/bin/sh\nprintf '", answer, "\\n'\n"), 0755);
    sshd_ = PrepareLocalSshd(JoinPath(node_.state_dir(), "ssh/local")).value();
    const std::string config = ReadFileToString(sshd_.config_path).value();
    const std::string path = absl::StrCat(node_.dir().Sub("fake"), ":/usr/local/bin:/usr/bin:/bin");
    ASSERT_THAT(config, HasSubstr("SetEnv SHLVL=1"));
    sshd_.config_path = node_.dir().Write(
        "sshd_config", absl::StrReplaceAll(config, {{"SetEnv SHLVL=1", "SetEnv PATH=" + path}}));
  }

  // Gives the laptop programs for `platform`: this machine's, with a mark at the end.
  void Have(NodePlatform platform) {
    const std::string dir = absl::StrCat("programs/", PlatformName(platform), "/");
    PlatformPrograms programs;
    programs.platform = platform;
    programs.dir = node_.dir().Sub(dir);
    for (const char* name : {"gpuctl-agent", "gpuctl-shim"}) {
      node_.dir().Write(
          dir + name,
          absl::StrCat(ReadFileToString(JoinPath(BinDir(), name), int64_t{1} << 28).value(),
                       PlatformName(platform)),
          0755);
    }
    programs.agent = node_.dir().Sub(dir + "gpuctl-agent");
    programs.shim = node_.dir().Sub(dir + "gpuctl-shim");
    options_.programs.Add(std::move(programs));
  }

  // Links, and waits until the node answers.
  static void Reach(LinkFactory& links) {
    const auto link = links.Connect();
    ASSERT_OK(link);
    grpc::ClientContext context;
    gpuctl::v1::HelloReply reply;
    const grpc::Status status = (*link)->agent().stub->Hello(&context, {}, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message() << (*link)->status();
  }

  // Returns the mark of the one delivered agent.
  std::string DeliveredMark() {
    std::string marks;
    const std::vector<std::string> names = ListDirectory(node_.root().bin).value();
    for (const std::string& name : names) {
      if (name.size() != 32) continue;
      const std::string agent = JoinPath(JoinPath(node_.root().bin, name), "gpuctl-agent");
      const std::string program = ReadFileToString(agent, int64_t{1} << 28).value_or("");
      for (const NodePlatform platform : AllPlatforms()) {
        if (absl::EndsWith(program, PlatformName(platform))) {
          absl::StrAppend(&marks, PlatformName(platform));
        }
      }
    }
    return marks;
  }

  std::string Note() {
    return ReadFileToString(
               HostKeyFile(JoinPath(node_.state_dir(), "ssh/delivered"), options_.target.name))
        .value_or("");
  }

  // Nothing may be left of an attempt.
  void ExpectNothingThere() {
    EXPECT_FALSE(PathExists(node_.root_dir()));
    EXPECT_EQ(Note(), "");
  }

  LoopbackNode node_;
  LocalSshd sshd_;
  SshLinkOptions options_;
};

TEST_F(PlatformTest, TheBundleOfTheNodesPlatformIsDelivered) {
  Have(kX86);
  Have(kArm);
  Say("Linux aarch64");
  const auto links = MakeSshLinkFactory(options_);
  EXPECT_FALSE(links->platform().has_value());
  Reach(*links);
  EXPECT_EQ(links->platform(), kArm);
  EXPECT_EQ(DeliveredMark(), "linux-aarch64");
  EXPECT_THAT(Note(), HasSubstr(" linux-aarch64\n"));
  // A later gpuctl knows without asking.
  Say("Linux riscv64");
  const auto later = MakeSshLinkFactory(options_);
  Reach(*later);
  EXPECT_EQ(later->platform(), kArm);
}

TEST_F(PlatformTest, ARebuiltMachineMayHaveAnotherProcessor) {
  Have(kX86);
  Have(kArm);
  Say("Linux x86_64");
  const auto links = MakeSshLinkFactory(options_);
  Reach(*links);
  EXPECT_EQ(DeliveredMark(), "linux-x86_64");
  for (const char* command : {"guard", "server"}) {
    for (const pid_t pid : node_.Pids(command)) kill(pid, SIGKILL);
  }
  ASSERT_OK(RemoveTree(node_.root_dir()));
  Say("Linux arm64");
  // The first link finds nothing, and the next one delivers.
  {
    const auto link = links->Connect();
    ASSERT_OK(link);
    Eventually([&link] { return !(*link)->status().ok(); }, "the end of the bridge");
  }
  Reach(*links);
  EXPECT_EQ(DeliveredMark(), "linux-aarch64");
  EXPECT_EQ(links->platform(), kArm);
}

TEST_F(PlatformTest, AGreetingIsNotTakenForTheAnswer) {
  Have(kX86);
  Have(kArm);
  Say("Linux aarch64");
  node_.dir().Write("home/.bashrc", "echo Linux armv7l\necho gpuctl-platform is Linux s390x\n");
  const std::string config = ReadFileToString(sshd_.config_path).value();
  ASSERT_OK(WriteFileAtomic(
      sshd_.config_path,
      absl::StrReplaceAll(
          config, {{"SetEnv PATH=",
                    absl::StrCat("SetEnv HOME=", node_.dir().Sub("home"), " SHLVL=1 PATH=")}})));
  const auto links = MakeSshLinkFactory(options_);
  Reach(*links);
  EXPECT_EQ(DeliveredMark(), "linux-aarch64");
}

TEST_F(PlatformTest, MissingProgramsAreToldAndNothingIsLeftThere) {
  Have(kX86);
  Say("Linux aarch64");
  const auto link = MakeSshLinkFactory(options_)->Connect();
  EXPECT_THAT(link, StatusIs(absl::StatusCode::kFailedPrecondition,
                             HasSubstr("it is Linux aarch64, and there are node programs for "
                                       "linux-x86_64 only")));
  EXPECT_THAT(HintOf(link.status()), StartsWith("gpuctl node fetch linux-aarch64"));
  EXPECT_EQ(ExitCodeOf(link.status()), kExitUsage);
  ExpectNothingThere();
}

TEST_F(PlatformTest, AMachineThatGpuctlHasNoProgramsForIsNamed) {
  Have(kX86);
  const struct {
    const char* answer;
    const char* said;
  } kAnswers[] = {{"Linux ppc64le", "its processor is ppc64le"},
                  {"FreeBSD amd64", "its system is FreeBSD"},
                  {"", "uname -sm"}};
  for (const auto& answer : kAnswers) {
    Say(answer.answer);
    const absl::Status status = MakeSshLinkFactory(options_)->Connect().status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(answer.said));
    EXPECT_EQ(ExitCodeOf(status), kExitUsage) << status;
    ExpectNothingThere();
  }
}

// Programs that the node cannot run, as an x86-64 kernel cannot run those of a Mac.
TEST_F(PlatformTest, AFailedDeliveryLeavesNothing) {
  Say("Darwin arm64");
  PlatformPrograms programs;
  programs.platform = NodePlatform::kMacArm64;
  WriteNodePrograms(node_.dir().Sub("mac"), programs.platform);
  programs.agent = node_.dir().Sub("mac/gpuctl-agent");
  programs.shim = node_.dir().Sub("mac/gpuctl-shim");
  options_.programs.Add(programs);
  const auto link = MakeSshLinkFactory(options_)->Connect();
  EXPECT_EQ(FaultOf(link.status()), LinkFault::kAgentCannotRun) << link.status();
  EXPECT_THAT(std::string(link.status().message()), HasSubstr("Darwin arm64"));
  EXPECT_THAT(ListDirectory(node_.root().bin).value(), IsEmpty());
  EXPECT_EQ(Note(), "");
}

// Most of the shim is in the agent, so the shim itself hardly travels.
TEST_F(PlatformTest, TheShimIsMadeOutOfTheAgentThere) {
  NodeBundles bundles(node_.Options().programs, node_.state_dir());
  size_t sent = 0;
  const auto run = [&](const std::string& command,
                       absl::string_view input) -> absl::StatusOr<NodeAnswer> {
    sent += input.size();
    const std::string in = node_.dir().Write("in", std::string(input));
    const std::string out = node_.dir().Sub("out");
    SpawnOptions options;
    options.argv = {"/bin/sh", "-c", absl::StrCat("(", command, ") < ", in, " > ", out)};
    ASSIGN_OR_RETURN(const pid_t pid, Spawn(options));
    int status = 0;
    waitpid(pid, &status, 0);
    return NodeAnswer{WEXITSTATUS(status), ReadFileToString(out).value_or(""), ""};
  };
  const auto bundle = DeliverBundle(run, node_.root_dir(), bundles);
  ASSERT_OK(bundle);
  const std::string shim = ReadFileToString(bundle->shim_path, int64_t{1} << 28).value();
  const std::string there =
      JoinPath(node_.root_dir(), absl::StrCat("bin/", bundle->digest, "/gpuctl-shim"));
  EXPECT_TRUE(ReadFileToString(there, int64_t{1} << 28).value() == shim);
  EXPECT_EQ(access(there.c_str(), X_OK), 0);
  const size_t others = ReadFileToString(bundle->agent_path, int64_t{1} << 28).value().size() +
                        ReadFileToString(bundle->roots_path).value_or("").size();
  EXPECT_LT(sent, others + shim.size() / 3);
}

}  // namespace
}  // namespace gpuctl
