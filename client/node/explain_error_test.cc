#include "client/node/explain_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "client/base/exit_codes.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

NodeTarget Machine(const std::string& name, const std::string& host) {
  NodeTarget target;
  target.provider = "vast";
  target.name = name;
  target.user = "root";
  target.host = host;
  target.port = 2222;
  return target;
}

TEST(ExplainErrorTest, HintsHoldCommandsThatCanBeTyped) {
  const NodeTarget target = Machine("vast/123", "203.0.113.7");
  EXPECT_THAT(HintOf(ExplainLinkError(absl::UnavailableError("timed out"), target)),
              HasSubstr("gpuctl doctor --host vast/123 finds the cause"));
  EXPECT_THAT(HintOf(ExplainLinkError(absl::UnauthenticatedError("no key fits"), target)),
              HasSubstr("ssh -p 2222 root@203.0.113.7"));
  EXPECT_THAT(HintOf(ExplainFullNode(absl::InternalError(strerror(ENOSPC)), target)),
              HasSubstr("make room on vast/123 below "));
}

TEST(ExplainErrorTest, HintsHoldNoNamesThatNobodyShouldType) {
  const NodeTarget target = Machine("vast/1;reboot", "h$(reboot)");
  for (const absl::Status& status :
       {absl::UnavailableError("timed out"), absl::UnauthenticatedError("no key fits"),
        absl::PermissionDeniedError("refused"), absl::InternalError("broken")}) {
    EXPECT_THAT(HintOf(ExplainLinkError(status, target)), Not(HasSubstr("reboot")));
  }
  EXPECT_THAT(HintOf(ExplainFullNode(absl::InternalError(strerror(ENOSPC)), target)),
              Not(HasSubstr("reboot")));
  EXPECT_EQ(LoginCommand(target), "ssh -p 2222 USER@HOST");
}

}  // namespace
}  // namespace gpuctl
