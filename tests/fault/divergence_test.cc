// Tests streams on the node that differ from what the laptop stored. The difference is reported and
// the old bytes are set aside; the two are never joined.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/link/agent_calls.h"
#include "client/streams/follower.h"
#include "common/base/clock.h"
#include "common/files/files.h"
#include "common/job/lifecycle.h"
#include "tests/support/loopback_node.h"
#include "tests/support/matchers.h"

namespace gpuctl {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Recorder : public FollowObserver {
 public:
  absl::Status OnNode(const std::string& id) override {
    node_id = id;
    return absl::OkStatus();
  }
  void OnNotice(absl::string_view text) override { notices.emplace_back(text); }
  void OnLinkDown(const absl::Status& status, absl::Duration) override {
    // A node that was wiped needs a second link, to get the programs; more than a few links are a
    // bug.
    ASSERT_LT(++downs, 5) << status;
  }
  std::string node_id;
  std::vector<std::string> notices;
  int downs = 0;
};

class DivergenceTest : public ::testing::Test {
 protected:
  // Runs a job with 300 kB of output to its end, and mirrors it.
  void RunToEnd() {
    request_ = node_.Request({TestProgram("fake_job"), "--once", Runs(), "--spam", "300000"});
    Follow(true, recorder_);
    ASSERT_THAT(recorder_.notices, IsEmpty());
    original_ = Mirrored();
    ASSERT_GT(original_.size(), 300'000u);
  }

  absl::Status TryFollow(bool start, Recorder& recorder) {
    FollowOptions options = node_.Following(request_);
    if (!start) {
      options.start.reset();
      options.node_id = recorder_.node_id;
    }
    const auto links = node_.Links();
    return Follower(options, *links, recorder, Clock::Real()).Follow();
  }
  void Follow(bool start, Recorder& recorder) { ASSERT_OK(TryFollow(start, recorder)); }

  std::string Runs() const { return node_.dir().Sub("runs"); }
  std::string Segment() const {
    return JoinPath(node_.root().Job(request_.spec().job_id()).output, "00000000000000000000");
  }
  std::string Mirrored() const {
    return ReadStream(MirrorPaths(node_.dir().Sub("mirror")).output,
                      StreamShape{kDefaultSegmentBytes});
  }
  // Returns the content of the one file that was set aside.
  std::string SetAside() const {
    std::string found;
    for (const std::string& name : node_.dir().Names("mirror")) {
      if (absl::StrContains(name, "diverged")) found = node_.dir().Sub("mirror/" + name);
    }
    return found.empty() ? "" : ReadFileToString(found).value();
  }

  LoopbackNode node_;
  gpuctl::v1::StartJobRequest request_;
  Recorder recorder_;
  std::string original_;
};

TEST_F(DivergenceTest, CutAndGrownAgainPastTheMirror) {
  RunToEnd();
  const std::string other = original_.substr(0, 100'000) + std::string(400'000, 'x');
  ASSERT_OK(WriteFileAtomic(Segment(), other));
  Recorder recorder;
  Follow(false, recorder);
  ASSERT_THAT(recorder.notices, SizeIs(1));
  EXPECT_THAT(recorder.notices[0], HasSubstr("set aside"));
  EXPECT_EQ(Mirrored(), other);
  // The bytes set aside and the bytes kept together are the bytes stored before.
  const std::string aside = SetAside();
  ASSERT_LE(aside.size(), original_.size());
  EXPECT_EQ(aside, original_.substr(original_.size() - aside.size()));
  EXPECT_GE(aside.size(), original_.size() - 100'000);
}

TEST_F(DivergenceTest, ZeroFilledTail) {
  RunToEnd();
  std::string zeroed = original_;
  std::fill(zeroed.begin() + 250'000, zeroed.end(), '\0');
  ASSERT_OK(WriteFileAtomic(Segment(), zeroed));
  Recorder recorder;
  Follow(false, recorder);
  ASSERT_THAT(recorder.notices, SizeIs(1));
  EXPECT_EQ(Mirrored(), zeroed);
  EXPECT_TRUE(absl::EndsWith(original_, SetAside()));
}

TEST_F(DivergenceTest, NodeFileShorterThanTheMirror) {
  RunToEnd();
  ASSERT_EQ(truncate(Segment().c_str(), 200'000), 0);
  Recorder recorder;
  Follow(false, recorder);
  ASSERT_THAT(recorder.notices, SizeIs(1));
  EXPECT_EQ(Mirrored(), original_.substr(0, 200'000));
  EXPECT_TRUE(absl::EndsWith(original_, SetAside()));
}

TEST_F(DivergenceTest, RebuiltNodeHasLostTheJobAndDoesNotStartIt) {
  RunToEnd();
  const std::string first_node = recorder_.node_id;
  for (const char* what : {"guard", "server"}) {
    for (const pid_t pid : node_.Pids(what)) kill(pid, SIGKILL);
  }
  ASSERT_OK(RemoveTree(node_.root_dir()));
  for (const bool start : {false, true}) {
    Recorder recorder;
    FollowOptions options = node_.Following(request_);
    options.node_id = first_node;
    if (!start) options.start.reset();
    const auto links = node_.Links();
    EXPECT_THAT(Follower(options, *links, recorder, Clock::Real()).Follow(),
                StatusIs(absl::StatusCode::kNotFound));
  }
  EXPECT_EQ(Mirrored(), original_);
  EXPECT_EQ(ReadFileToString(Runs()).value(), "run\n");
}

TEST_F(DivergenceTest, OutputPastItsLimitIsToldAndReadableAround) {
  request_ =
      node_.Request({TestProgram("fake_job"), "--spam", "1000000"}, [](gpuctl::v1::JobSpec& spec) {
        spec.set_output_segment_bytes(1 << 16);
        spec.set_output_limit_bytes(1 << 18);
      });
  // The job ends before anybody reads.
  {
    const auto links = node_.Links();
    absl::StatusOr<std::unique_ptr<Link>> link = links->Connect();
    ASSERT_OK(link);
    grpc::ClientContext context;
    gpuctl::v1::Job job;
    ASSERT_TRUE((*link)->agent().stub->StartJob(&context, request_, &job).ok());
    const JobPaths paths = node_.root().Job(request_.spec().job_id());
    Eventually(
        [&] {
          const std::string text = ReadFileToString(paths.lifecycle).value_or("");
          return IsOver(ParseLifecycle(text));
        },
        "the end of the job");
  }
  Recorder recorder;
  Follow(true, recorder);
  ASSERT_THAT(recorder.notices, SizeIs(1));
  EXPECT_THAT(recorder.notices[0], HasSubstr("output limit"));
  const StreamShape shape{1 << 16};
  const JobPaths paths = node_.root().Job(request_.spec().job_id());
  const std::string kept = ReadStream(paths.output, shape);
  EXPECT_LE(kept.size(), static_cast<size_t>(1 << 18));
  EXPECT_GE(kept.size(), static_cast<size_t>(3 << 16));
  StreamReader mirror(MirrorPaths(node_.dir().Sub("mirror")).output, shape);
  const Extent extent = mirror.GetExtent().value();
  EXPECT_EQ(extent.size - extent.first_offset, static_cast<int64_t>(kept.size()));
  EXPECT_EQ(ReadStream(MirrorPaths(node_.dir().Sub("mirror")).output, shape), kept);
  char byte = 0;
  EXPECT_THAT(mirror.Read(0, &byte, 1), StatusIs(absl::StatusCode::kOutOfRange));
  // The lifecycle says which bytes are gone.
  const Lifecycle lifecycle = ReadMirrorLifecycle(node_.dir().Sub("mirror")).value();
  int64_t told = 0;
  for (const LifecycleEvent& event : lifecycle.events) {
    if (event.type == LifecycleEvent::Type::kCut) told = event.first_offset;
  }
  EXPECT_EQ(told, extent.first_offset);
}

}  // namespace
}  // namespace gpuctl
