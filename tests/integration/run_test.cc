// Tests one job with the real parts: sshd, bridge, guard, server, shim.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "client/streams/follower.h"
#include "common/base/clock.h"
#include "common/job/lifecycle.h"
#include "tests/support/loopback_node.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::SizeIs;

class Recorder : public FollowObserver {
 public:
  void OnLinkDown(const absl::Status& status, absl::Duration) override {
    downs.push_back(status);
    // Only a bug makes these tests link again and again.
    ASSERT_LT(downs.size(), 20u) << status;
  }
  void OnNotice(absl::string_view text) override { notices.emplace_back(text); }
  absl::Status OnAccepted(const gpuctl::v1::Job&, const std::string& node) override {
    ++accepted;
    node_id = node;
    return absl::OkStatus();
  }
  std::vector<absl::Status> downs;
  std::vector<std::string> notices;
  std::string node_id;
  int accepted = 0;
};

std::string MirroredOutput(const FollowOptions& options) {
  return ReadStream(MirrorPaths(options.mirror_dir).output, StreamShape{kDefaultSegmentBytes});
}

TEST(RunTest, OutputComesHomeByteForByte) {
  LoopbackNode node;
  const auto links = node.Links();
  const auto request = node.Request({"/bin/sh", "-c", "echo hello; printf 'a\\0b'; echo err >&2"});
  const FollowOptions options = node.Following(request);
  Recorder recorder;
  Follower follower(options, *links, recorder, Clock::Real());
  ASSERT_OK(follower.Follow());
  EXPECT_EQ(MirroredOutput(options), std::string("hello\na\0berr\n", 13));
  EXPECT_EQ(recorder.accepted, 1);
  EXPECT_THAT(recorder.downs, SizeIs(0));
  const absl::StatusOr<Lifecycle> lifecycle = ReadMirrorLifecycle(options.mirror_dir);
  ASSERT_OK(lifecycle);
  ASSERT_THAT(lifecycle->events, SizeIs(2));
  EXPECT_EQ(lifecycle->events[0].type, LifecycleEvent::Type::kStarted);
  EXPECT_EQ(lifecycle->events[1].type, LifecycleEvent::Type::kExited);
  EXPECT_EQ(lifecycle->events[1].exit_code, 0);
}

TEST(RunTest, ASecondFollowerOfTheSameJobSeesTheSame) {
  LoopbackNode node;
  const auto links = node.Links();
  const auto request = node.Request({"/bin/sh", "-c", "seq 1 20000"});
  Recorder recorder;
  Follower first(node.Following(request), *links, recorder, Clock::Real());
  ASSERT_OK(first.Follow());
  FollowOptions again = node.Following(request, "mirror2");
  again.start.reset();
  again.node_id = recorder.node_id;
  Follower second(again, *links, recorder, Clock::Real());
  ASSERT_OK(second.Follow());
  EXPECT_EQ(MirroredOutput(again), MirroredOutput(node.Following(request)));
  EXPECT_EQ(MirroredOutput(again).size(), 108894u);
}

}  // namespace
}  // namespace gpuctl
