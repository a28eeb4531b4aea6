#include "agent/send.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/manifest.h"
#include "common/transfer.h"
#include "tests/matchers.h"
#include "tests/scripted_peer.h"
#include "tests/temp_dir.h"

namespace gpuctl {
namespace {

using gpuctl::v1::Manifest;
using gpuctl::v1::TransferFrame;
using ::testing::HasSubstr;

// A node's root with one job in it.
struct Node {
  Node() {
    dir.Write("jobs/j-1/spec.json", "secret spec");
    dir.Write("jobs/j-1/work/out/model.bin", std::string(2 * kFileDataBytes + 5, 'm'));
    dir.Write("jobs/j-1/work/out/run.sh", "#!/bin/sh\n", 0755);
    dir.Write("jobs/j-1/ckpt/step-1/manifest.json", "{}");
    dir.Write("outside/secret", "secret");
  }
  TempDir dir;
  std::string root = dir.path();
};

TransferFrame Begin(const std::string& job_id, const std::string& path) {
  TransferFrame frame;
  frame.mutable_pull_begin()->set_job_id(job_id);
  frame.mutable_pull_begin()->set_path(path);
  return frame;
}

absl::StatusOr<Manifest> Pull(const Node& node, const std::string& path, const std::string& into) {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  UniqueFd ours(fds[0]);
  std::thread server([&, fd = fds[1]] {
    UniqueFd theirs(fd);
    (void)Send(node.root, theirs.get(), theirs.get());
  });
  FrameChannel channel(ours.get(), ours.get());
  auto manifest = PullTree(channel, "j-1", path, into, nullptr);
  ours.reset();
  server.join();
  return manifest;
}

absl::Status SendScript(const Node& node, const TransferFrame& begin,
                        std::vector<TransferFrame>* heard) {
  ScriptedPeer peer(Encode({begin}));
  absl::Status status = Send(node.root, peer.in_fd(), peer.out_fd());
  *heard = Decode(peer.Heard());
  return status;
}

TEST(Send, BringsADirectoryHome) {
  Node node;
  TempDir laptop;
  const auto manifest = Pull(node, "work/out", laptop.Sub("got"));
  ASSERT_THAT(manifest, IsOk());
  EXPECT_EQ(manifest->entries_size(), 2);
  EXPECT_EQ(ManifestDigest(ScanTree(laptop.Sub("got")).value()), ManifestDigest(*manifest));
  EXPECT_EQ(ReadFileToString(laptop.Sub("got/run.sh")).value(), "#!/bin/sh\n");
  ASSERT_THAT(Pull(node, "ckpt/step-1", laptop.Sub("step-1")), IsOk());
  ASSERT_THAT(Pull(node, "work", laptop.Sub("work")), IsOk());
  EXPECT_TRUE(PathExists(laptop.Sub("work/out/model.bin")));
}

TEST(Send, BringsASingleFileHome) {
  Node node;
  TempDir laptop;
  const auto manifest = Pull(node, "work/out/run.sh", laptop.Sub("got"));
  ASSERT_THAT(manifest, IsOk());
  EXPECT_EQ(laptop.Names("got"), std::vector<std::string>{"run.sh"});
  EXPECT_EQ(manifest->entries(0).mode(), 0755u);
}

TEST(Send, ReachesNothingButTheJobsOwnFiles) {
  Node node;
  ASSERT_EQ(symlink(node.dir.Sub("outside").c_str(), node.dir.Sub("jobs/j-1/work/dir").c_str()), 0);
  ASSERT_EQ(symlink("../spec.json", node.dir.Sub("jobs/j-1/work/file").c_str()), 0);
  ASSERT_THAT(MakeDirectories(node.dir.Sub("jobs/j-2")), IsOk());
  ASSERT_EQ(symlink("../../outside", node.dir.Sub("jobs/j-2/work").c_str()), 0);
  ASSERT_EQ(mkfifo(node.dir.Sub("jobs/j-1/work/fifo").c_str(), 0600), 0);
  for (const TransferFrame& begin : {
           Begin("j-1", ""),
           Begin("j-1", "spec.json"),
           Begin("j-1", "."),
           Begin("j-1", "/etc"),
           Begin("j-1", "work/../spec.json"),
           Begin("j-1", "work/"),
           Begin("j-1", "../j-1/work"),
           Begin("j-1", "workx"),
           Begin("j-1", std::string("work\0x", 6)),
           Begin("j-1", "work/dir"),
           Begin("j-1", "work/dir/secret"),
           Begin("j-1", "work/file"),
           Begin("j-1", "work/fifo"),
           Begin("j-1", "work/missing"),
           Begin("j-2", "work"),
           Begin("j-2", "work/secret"),
           Begin("j-3", "work"),
           Begin("../outside", "work"),
           Begin("", "work"),
           Begin("..", "work"),
           Begin("J", "work"),
       }) {
    std::vector<TransferFrame> heard;
    EXPECT_FALSE(SendScript(node, begin, &heard).ok()) << begin.ShortDebugString();
    ASSERT_EQ(heard.size(), 1u) << begin.ShortDebugString();
    EXPECT_NE(heard[0].done().code(), 0);
  }
}

TEST(Send, CarriesSymlinksWithoutFollowingThem) {
  Node node;
  ASSERT_EQ(symlink(node.dir.Sub("outside").c_str(), node.dir.Sub("jobs/j-1/work/dir").c_str()), 0);
  TempDir laptop;
  ASSERT_THAT(Pull(node, "work", laptop.Sub("got")), IsOk());
  char target[4096];
  ASSERT_GT(readlink(laptop.Sub("got/dir").c_str(), target, sizeof(target)), 0);
}

TEST(Send, SaysWhatIsMissing) {
  Node node;
  TempDir laptop;
  EXPECT_THAT(Pull(node, "work/none", laptop.Sub("got")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("work/none")));
  EXPECT_TRUE(laptop.Names().empty());
}

TEST(Send, RefusesAnotherFrameAndAClosedStream) {
  Node node;
  ScriptedPeer closed("");
  EXPECT_THAT(Send(node.root, closed.in_fd(), closed.out_fd()),
              StatusIs(absl::StatusCode::kUnavailable));
  TransferFrame other;
  other.mutable_push_begin();
  std::vector<TransferFrame> heard;
  EXPECT_THAT(SendScript(node, other, &heard), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace gpuctl
