// Deliveries to a node whose answers the test makes: its commands run here, in a shell, with
// another `uname`.
#include "client/programs/bundle_delivery.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/shell_quote.h"
#include "common/base/link_fault.h"
#include "common/files/files.h"
#include "common/process/process.h"
#include "tests/support/matchers.h"
#include "tests/support/node_programs_dir.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// An agent as far as a delivery needs one; it cannot unpack, like those of older builds.
constexpr char kAgent[] =
    "#!/bin/sh\ncase $1 in\nsha256) sha256sum \"$2\" | cut -c -64;;\napi-level) echo 2;;\n"
    "*) exit 2;;\nesac\n# ";

class DeliveryTest : public ::testing::Test {
 protected:
  void Have(NodePlatform platform, const std::string& agent = kAgent) {
    PlatformPrograms programs;
    programs.platform = platform;
    const std::string dir = absl::StrCat("laptop/", PlatformName(platform), "/");
    programs.agent = dir_.Write(dir + "agent", absl::StrCat(agent, PlatformName(platform)), 0755);
    programs.shim = dir_.Write(dir + "shim", absl::StrCat("shim ", PlatformName(platform)), 0755);
    programs.roots = dir_.Write(dir + "roots.pem", "roots");
    programs_.Add(programs);
  }
  void Say(const std::string& answer) {
    dir_.Write("fake/uname", absl::StrCat("#!/bin/sh\nprintf '", answer, "\\n'\n"), 0755);
  }

  absl::StatusOr<Bundle> Deliver() {
    commands_ = 0;
    NodeBundles bundles(programs_, dir_.Sub("state"));
    return DeliverBundle(
        [this](const std::string& command, absl::string_view input) { return Run(command, input); },
        root(), bundles);
  }

  absl::StatusOr<NodeAnswer> Run(const std::string& command, absl::string_view input) {
    ++commands_;
    if (!failing_.empty() && absl::StrContains(command, failing_)) return failure_;
    const std::string in = dir_.Write("in", std::string(input));
    const std::string out = dir_.Sub("out"), err = dir_.Sub("err");
    const std::string line =
        absl::StrCat("PATH=", dir_.Sub("fake"), ":$PATH; echo Linux s390x; (", command, ") < ",
                     ShellQuote(in), " > ", ShellQuote(out), " 2> ", ShellQuote(err));
    SpawnOptions options;
    options.argv = {"/bin/sh", "-c", absl::StrCat("exec > /dev/null; ", line)};
    const absl::StatusOr<pid_t> pid = Spawn(options);
    if (!pid.ok()) return pid.status();
    int status = 0;
    waitpid(*pid, &status, 0);
    return NodeAnswer{WEXITSTATUS(status), "Linux armv7l\n" + ReadFileToString(out).value_or(""),
                      ReadFileToString(err).value_or("")};
  }

  std::string root() const { return dir_.Sub("a root"); }
  std::vector<std::string> Delivered() const {
    return ListDirectory(JoinPath(root(), "bin")).value_or(std::vector<std::string>{"no bin"});
  }

  TempDir dir_;
  NodePrograms programs_;
  int commands_ = 0;
  // A command with this text gets `failure_` as its answer.
  std::string failing_;
  absl::StatusOr<NodeAnswer> failure_ = NodeAnswer{1, "", "a message\nit failed\n"};
};

TEST_F(DeliveryTest, ANodeGetsTheBundleOfItsPlatformOnce) {
  Have(kX86);
  Have(kArm);
  for (const auto& [answer, platform] : std::vector<std::pair<std::string, NodePlatform>>{
           {"Linux aarch64", kArm}, {"Linux x86_64", kX86}}) {
    Say(answer);
    const auto bundle = Deliver();
    ASSERT_OK(bundle);
    EXPECT_EQ(bundle->platform, platform);
    const std::string dir = JoinPath(root(), absl::StrCat("bin/", bundle->digest, "/"));
    EXPECT_EQ(ReadFileToString(dir + "gpuctl-agent").value(),
              absl::StrCat(kAgent, PlatformName(platform)));
    EXPECT_EQ(ReadFileToString(dir + "gpuctl-shim").value(),
              absl::StrCat("shim ", PlatformName(platform)));
    EXPECT_EQ(ReadFileToString(dir + "roots.pem").value(), "roots");
    EXPECT_EQ(ReadFileToString(dir + "api_level").value(), "2\n");
    EXPECT_EQ(ReadFileToString(dir + "version").value(), absl::StrCat(bundle->version, "\n"));
    // The second time one round trip tells all.
    ASSERT_OK(Deliver());
    EXPECT_EQ(commands_, 1);
  }
}

TEST_F(DeliveryTest, NothingIsWrittenForAMachineThatIsNotServed) {
  Have(kX86);
  for (const char* answer :
       {"Linux aarch64", "Darwin arm64", "Linux riscv64", "FreeBSD amd64", ""}) {
    Say(answer);
    const auto refused = Deliver();
    EXPECT_EQ(ExitCodeOf(refused.status()), kExitUsage) << refused.status();
    EXPECT_NE(HintOf(refused.status()), "") << answer;
    EXPECT_EQ(commands_, 1) << answer;
    EXPECT_FALSE(PathExists(root())) << answer;
  }
}

TEST_F(DeliveryTest, ProgramsThatWereTamperedWithMatterOnlyWhereTheyAreNeeded) {
  Have(kX86);
  PlatformPrograms fetched;
  fetched.platform = kArm;
  fetched.agent = dir_.Write("fetched/agent", "changed");
  fetched.shim = dir_.Write("fetched/shim", "changed");
  fetched.fetched = true;
  fetched.manifest.emplace();
  fetched.manifest->platforms[kArm].files["gpuctl-agent"].sha256 = std::string(64, '0');
  programs_.Add(fetched);
  Say("Linux x86_64");
  EXPECT_OK(Deliver());
  Say("Linux aarch64");
  EXPECT_THAT(Deliver(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                  HasSubstr("is not what this gpuctl was made with")));
}

TEST_F(DeliveryTest, WhateverFailsNothingIsLeft) {
  Have(kX86);
  Say("Linux x86_64");
  for (const char* step :
       {"gpuctl-agent &&", "roots.pem &&", "unpack", "gpuctl-shim &&", "sha256", "mv "}) {
    failing_ = step;
    const auto failed = Deliver();
    EXPECT_EQ(FaultOf(failed.status()), LinkFault::kAgentCannotRun) << step << failed.status();
    EXPECT_THAT(std::string(failed.status().message()), HasSubstr("exit 1: it failed")) << step;
    EXPECT_THAT(Delivered(), ::testing::AnyOf(IsEmpty(), ElementsAre("no bin"))) << step;
  }
  failure_ = absl::UnavailableError("the connection broke");
  EXPECT_THAT(Deliver(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(DeliveryTest, AnAgentThatDoesNotRunOrIsDamagedIsTold) {
  Have(kX86, "#!/bin/sh\necho 'wrong format' >&2; exit 126\n# ");
  Say("Linux x86_64");
  EXPECT_THAT(
      Deliver(),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("run the agent on the node (Linux x86_64): exit 126: wrong format")));
  EXPECT_THAT(Delivered(), IsEmpty());
  Have(kX86, "#!/bin/sh\necho 0000\n# ");
  EXPECT_THAT(Deliver(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("damaged")));
  EXPECT_THAT(Delivered(), IsEmpty());
}

}  // namespace
}  // namespace gpuctl
