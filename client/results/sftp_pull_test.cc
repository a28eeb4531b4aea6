#include "client/results/sftp_pull.h"

#include <gtest/gtest.h>

#include "common/base/link_fault.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

TEST(AgentCannotRun, IsAFaultAndNoWords) {
  for (const LinkFault fault : {LinkFault::kAgentCannotRun, LinkFault::kNoRoomForAgent}) {
    EXPECT_TRUE(AgentCannotRun(
        Annotate(WithFault(absl::UnavailableError("exit 127"), fault), "list the job's files")));
  }
  for (const LinkFault fault : {LinkFault::kNone, LinkFault::kServerStuck, LinkFault::kPeerDiskFull,
                                LinkFault::kAgentTooOld}) {
    EXPECT_FALSE(AgentCannotRun(
        WithFault(absl::UnavailableError("start the agent's bridge: exit 127"), fault)));
  }
  for (const char* message :
       {"deliver the agent: exit 1: x", "run the agent on the node (Linux): x",
        "start the agent's bridge: exit 126: x",
        "list the job's files: start the agent's bridge: exit 12"}) {
    EXPECT_FALSE(AgentCannotRun(absl::FailedPreconditionError(message))) << message;
    EXPECT_FALSE(AgentCannotRun(absl::UnavailableError(message))) << message;
  }
}

}  // namespace
}  // namespace gpuctl
