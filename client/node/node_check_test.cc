#include "client/node/node_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <utility>

#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;

// A clock that moves on by half a minute at each look.
class HurryingClock : public Clock {
 public:
  absl::Time Now() override { return absl::UnixEpoch() + SinceBoot(); }
  absl::Duration SinceBoot() override { return now_ += absl::Seconds(30); }
  void SleepFor(absl::Duration duration) override { now_ += duration; }

 private:
  absl::Duration now_;
};

// A command that takes its input and never prints anything.
class SilentCommand : public RemoteCommand {
 public:
  SilentCommand() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    ours_.reset(fds[0]);
    theirs_.reset(fds[1]);
  }
  int fd() override { return ours_.get(); }
  absl::StatusOr<int> Wait() override { return absl::InternalError("nobody waits for it"); }
  std::string Stderr() override { return ""; }

 private:
  UniqueFd ours_, theirs_;
};

class SilentNode : public LinkFactory {
 public:
  absl::StatusOr<std::unique_ptr<Link>> Connect() override { return absl::InternalError("no"); }
  absl::StatusOr<std::unique_ptr<RemoteCommand>> Run(const std::string&) override {
    return std::make_unique<SilentCommand>();
  }
  absl::StatusOr<std::unique_ptr<AgentStream>> RunAgent(const std::string&) override {
    return absl::InternalError("no");
  }
};

TEST(NodeCheck, ADriverThatHangsIsGivenUp) {
  TempDir dir;
  ASSERT_OK(WriteFileAtomic(dir.Sub("check"), "a program"));
  PromisedNode promised;
  promised.gpu_name = "A10";
  promised.gpu_count = 1;
  gpuctl::v1::HelloReply hello;
  hello.add_gpus()->set_name("NVIDIA A10");
  SilentNode node;
  HurryingClock clock;
  EXPECT_THAT(CheckNode(promised, hello, {node, clock, {}}, dir.Sub("check")).status(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("try CUDA there: a command on it did "
                                                             "not end")));
  // A connection over which nothing comes back fails as well.
  promised.gpu_count = 0;
  EXPECT_THAT(CheckNode(promised, hello, {node, clock, {}}, "").status(),
              StatusIs(absl::StatusCode::kAborted));
}

TEST(NodeCheck, IsCutShort) {
  SilentNode node;
  int looks = 0;
  const auto cancelled = [&looks] { return ++looks > 2; };
  EXPECT_THAT(CheckNode({}, {}, {node, Clock::Real(), cancelled}, "").status(),
              StatusIs(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace gpuctl
