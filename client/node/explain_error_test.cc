#include "client/node/explain_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/host_keys.h"
#include "client/base/reach_error.h"
#include "client/link/api_check.h"
#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
#include "common/transfer/error_detail.h"
#include "common/transfer/fault_line.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using gpuctl::v1::ErrorDetail;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

NodeTarget Remote() {
  NodeTarget target;
  target.provider = "ssh";
  target.name = "gpu.example";
  target.host = "gpu.example";
  target.user = "ada";
  target.port = 2222;
  return target;
}

NodeTarget Local() {
  NodeTarget target;
  target.provider = "local";
  target.name = "local";
  return target;
}

// Returns a link's status for the message of a bridge that finds a stuck server.
absl::Status Stuck(const std::string& root) {
  ErrorDetail detail;
  detail.set_kind(ErrorDetail::KIND_SERVER_STUCK);
  detail.set_root(root);
  return FromPeer(
      absl::FailedPreconditionError("start the agent's bridge: exit 1: it has not made way"),
      FindFaultLine(absl::StrCat("Last login: today", FormatFaultLine(detail))));
}

std::string HintFor(const absl::Status& status, const NodeTarget& target) {
  return HintOf(ExplainLinkError(status, target));
}

TEST(ExplainLinkError, AStuckServersCommandIsMadeHere) {
  EXPECT_EQ(HintFor(Stuck("/root/.gpuctl"), Local()),
            "guard or server hang there. This ends them, and no job: pkill -KILL -f "
            "'[g]puctl-agent (guard|server) --root /root/.gpuctl'");
  EXPECT_EQ(HintFor(Annotate(Stuck("/root/.gpuctl"), "ask the node who it is"), Remote()),
            "guard or server hang there. This ends them, and no job: ssh -p 2222 ada@gpu.example "
            "'pkill -KILL -f '\\''[g]puctl-agent (guard|server) --root /root/.gpuctl'\\'''");
  const absl::Status explained = ExplainLinkError(Stuck("/root/.gpuctl"), Remote());
  EXPECT_THAT(std::string(explained.message()), StartsWith("reach gpu.example: "));
  EXPECT_TRUE(absl::IsFailedPrecondition(explained));
}

TEST(ExplainLinkError, NothingOfTheNodesIsTypedThatAShellWouldTakeForMore) {
  for (const char* root : {"/a'; rm -rf ~; '", "/a b", "/$(reboot)", "/a\"", "/a\nreboot", "/a|b",
                           "/(a|.*)", "/a\\", "/a\xc3\xa4", "relative", "", "-x"}) {
    for (const NodeTarget& target : {Local(), Remote()}) {
      const std::string hint = HintFor(Stuck(root), target);
      EXPECT_THAT(hint, StartsWith("guard or server hang there. Kill the processes")) << root;
      if (*root != '\0') {
        EXPECT_THAT(hint, Not(HasSubstr(root)));
      }
      EXPECT_THAT(hint, Not(HasSubstr("pkill")));
    }
  }
}

TEST(ExplainLinkError, AnOlderAgentIsNamed) {
  const absl::Status old = CheckApiLevel(gpuctl::v1::HelloReply());
  EXPECT_EQ(FaultOf(old), LinkFault::kAgentTooOld);
  EXPECT_THAT(HintFor(old, Remote()), HasSubstr("is of an older build: install both"));
}

TEST(ExplainLinkError, AChangedHostKeyIsToldFromOtherRefusals) {
  TempDir dir;
  ASSERT_TRUE(CheckHostKey(dir.path(), "gpu.example", "SHA256:a").ok());
  const absl::Status changed = CheckHostKey(dir.path(), "gpu.example", "SHA256:b");
  EXPECT_TRUE(absl::IsPermissionDenied(changed));
  EXPECT_EQ(FaultOf(changed), LinkFault::kHostKeyChanged);
  EXPECT_THAT(HintFor(changed, Remote()), HasSubstr("delete the file it is pinned in"));
}

TEST(ExplainLinkError, ANodeWithoutRoomForTheAgentIsToldToMakeSome) {
  const absl::Status status = WithFault(absl::FailedPreconditionError("deliver the agent: exit 1"),
                                        LinkFault::kNoRoomForAgent);
  EXPECT_EQ(HintFor(status, Remote()), "make room on gpu.example below ~/.gpuctl and repeat this");
  EXPECT_EQ(HintOf(ExplainFullNode(status, Remote())), HintFor(status, Remote()));
}

TEST(ExplainFullNode, IsAboutTheNodesDiskAndNotThisOnes) {
  for (const int error : {ENOSPC, EDQUOT}) {
    const absl::Status there = ErrnoStatus(error, "write a");
    const absl::Status heard = FromPeer(absl::Status(there.code(), there.message()),
                                        DetailToSend(Annotate(there, "receive")));
    const absl::Status explained = ExplainFullNode(heard, Remote());
    EXPECT_THAT(std::string(explained.message()), StartsWith("on gpu.example: write a: "));
    EXPECT_EQ(HintOf(explained),
              "make room on gpu.example below ~/.gpuctl and repeat this: what was sent is kept "
              "there");
    // A full disk of the laptop itself.
    EXPECT_EQ(ExplainFullNode(there, Remote()), there);
  }
}

// Messages alone decide nothing: they may come from an older agent, a user's script, a path.
TEST(ExplainError, WordsAloneDecideNothing) {
  const std::string words[] = {
      "the agent there is older than this gpuctl (api level 1, 2 is needed)",
      "the agent's server here is older and has not made way for the new one; this ends it, and no "
      "job: reboot",
      "the host key of x has changed",
      absl::StrCat("write a: ", strerror(ENOSPC)),
      absl::StrCat("write a: ", strerror(EDQUOT)),
      "deliver the agent: exit 1: x",
      "run the agent on the node (Linux): x",
      "start the agent's bridge: exit 127: x",
  };
  for (const std::string& message : words) {
    for (const absl::StatusCode code :
         {absl::StatusCode::kFailedPrecondition, absl::StatusCode::kPermissionDenied,
          absl::StatusCode::kResourceExhausted, absl::StatusCode::kUnavailable}) {
      const absl::Status status(code, message);
      EXPECT_EQ(FaultOf(status), LinkFault::kNone) << status;
      EXPECT_EQ(ExplainFullNode(status, Remote()), status);
      const absl::Status explained = ExplainLinkError(status, Remote());
      EXPECT_THAT(HintOf(explained), EndsWith("gpuctl doctor --host gpu.example finds the cause"))
          << status;
      EXPECT_EQ(explained.message(), absl::StrCat("reach gpu.example: ", message));
    }
  }
}

TEST(ReachError, NamesTheNodeOnce) {
  const absl::Status once = ReachError(absl::UnavailableError("no route"), "a");
  EXPECT_EQ(once.message(), "reach a: no route");
  EXPECT_EQ(ReachError(once, "a").message(), once.message());
  EXPECT_EQ(ReachError(Annotate(once, "pull"), "a").message(), "pull: reach a: no route");
  // Another message may begin with the same words.
  EXPECT_EQ(ReachError(absl::UnavailableError("reach for it"), "a").message(),
            "reach a: reach for it");
  EXPECT_TRUE(ReachError(absl::OkStatus(), "a").ok());
}

NodeTarget Machine(const std::string& name, const std::string& host) {
  NodeTarget target;
  target.provider = "vast";
  target.name = name;
  target.user = "root";
  target.host = host;
  target.port = 2222;
  return target;
}

absl::Status FullThere() {
  return WithFault(absl::InternalError(strerror(ENOSPC)), LinkFault::kPeerDiskFull);
}

TEST(ExplainErrorTest, HintsHoldCommandsThatCanBeTyped) {
  NodeTarget target = Machine("vast/123", "203.0.113.7");
  target.provider = "vast";
  target.identity_files = {"/home/ada/.config/gpuctl/key"};
  target.identities_only = true;
  EXPECT_THAT(HintOf(ExplainLinkError(absl::UnavailableError("timed out"), target)),
              HasSubstr("gpuctl instances tells how its market sees it"));
  EXPECT_THAT(HintOf(ExplainLinkError(absl::UnauthenticatedError("no key fits"), target)),
              HasSubstr("ssh -i /home/ada/.config/gpuctl/key -p 2222 root@203.0.113.7"));
  EXPECT_THAT(HintOf(ExplainFullNode(FullThere(), target)),
              HasSubstr("make room on vast/123 below "));
  // A gateway has the user's keys from a page.
  target.provider = "huggingface";
  EXPECT_THAT(HintOf(ExplainLinkError(absl::UnauthenticatedError("no key fits"), target)),
              HasSubstr("https://huggingface.co/settings/keys"));
}

TEST(ExplainErrorTest, NobodyLogsInToLocalByHand) {
  EXPECT_EQ(HintFor(absl::UnauthenticatedError("no key was accepted"), Local()),
            "gpuctl doctor checks what a local run needs");
}

TEST(ExplainErrorTest, HintsHoldNoNamesThatNobodyShouldType) {
  const NodeTarget target = Machine("vast/1;reboot", "h$(reboot)");
  for (const absl::Status& status :
       {absl::UnavailableError("timed out"), absl::UnauthenticatedError("no key fits"),
        absl::PermissionDeniedError("refused"), absl::InternalError("broken")}) {
    EXPECT_THAT(HintOf(ExplainLinkError(status, target)), Not(HasSubstr("reboot")));
  }
  EXPECT_THAT(HintOf(ExplainFullNode(FullThere(), target)), Not(HasSubstr("reboot")));
  EXPECT_THAT(HintFor(Stuck("/a"), target), Not(HasSubstr("reboot")));
  EXPECT_THAT(HintFor(Stuck("/a"), target), HasSubstr("ssh -p 2222 USER@HOST 'pkill "));
  EXPECT_EQ(LoginCommand(target), "ssh -p 2222 USER@HOST");
}

}  // namespace
}  // namespace gpuctl
