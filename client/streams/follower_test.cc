// What a follower stores while the laptop's disk is full.
#include "client/streams/follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/fake_node.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Notices : public FollowObserver {
 public:
  void OnNotice(absl::string_view text) override { notices.emplace_back(text); }
  std::vector<std::string> notices;
};

class FollowerRoomTest : public ::testing::Test {
 protected:
  FollowerRoomTest() {
    gpuctl::v1::WatchReply reply;
    gpuctl::v1::Chunk& chunk = *reply.add_chunks();
    chunk.set_stream(gpuctl::v1::STREAM_OUTPUT);
    chunk.set_data("hello");
    reply.set_complete(true);
    node_.script().watch = {reply};
    node_.script().has_job = true;
    links_ = node_.Links();
    options_.job_id = "j-1";
    options_.client_id = "c-1";
    options_.mirror_dir = dir_.Sub("m");
    options_.free_bytes = [this](const std::string&) {
      return looks_++ < full_for_ ? 0 : 1LL << 40;
    };
  }
  absl::Status Follow(const std::function<bool()>& until) {
    Follower follower(options_, *links_, seen_, Clock::Real());
    return follower.Follow(until);
  }
  int64_t Stored() { return MirroredBytes(options_.mirror_dir, 0).value_or(-1); }

  TempDir dir_;
  FakeNode node_;
  std::unique_ptr<LinkFactory> links_;
  FollowOptions options_;
  Notices seen_;
  int looks_ = 0;
  int full_for_ = 0;
};

TEST_F(FollowerRoomTest, CopyingGoesOnWhenThereIsRoomAgain) {
  // The node goes on after its first message.
  full_for_ = 1;
  node_.script().watch[0].set_complete(false);
  gpuctl::v1::WatchReply more;
  more.set_complete(true);
  node_.script().watch.push_back(more);
  EXPECT_OK(Follow({}));
  EXPECT_EQ(Stored(), 5);
  EXPECT_THAT(seen_.notices, ElementsAre(HasSubstr("are free on this disk"),
                                         HasSubstr("there is room on this disk again")));
}

TEST_F(FollowerRoomTest, OnAFullDiskOnlyTheEndOfTheJobIsStored) {
  full_for_ = 1'000'000;
  gpuctl::v1::WatchReply end;
  gpuctl::v1::Chunk& chunk = *end.add_chunks();
  chunk.set_stream(gpuctl::v1::STREAM_LIFECYCLE);
  chunk.set_data("the end\n");
  end.set_complete(true);
  node_.script().watch[0].set_complete(false);
  node_.script().watch.push_back(end);
  EXPECT_OK(Follow({}));
  EXPECT_EQ(Stored(), 8);
  EXPECT_THAT(seen_.notices, ElementsAre(HasSubstr("are free on this disk")));
}

}  // namespace
}  // namespace gpuctl
