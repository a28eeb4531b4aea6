#include "agent/trees/receive.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "common/files/staging_dir.h"
#include "tests/support/transfer_fixture.h"

namespace gpuctl {
namespace {

using gpuctl::v1::TransferFrame;

TEST(ReceivePush, StoresATreeOnce) {
  SampleLaptop laptop;
  Node node;
  ASSERT_OK(node.Push(laptop));
  node.ExpectWhole(laptop.digest());
  std::vector<TransferFrame> heard;
  ASSERT_OK(ReceiveScript(node, {laptop.Frames()[0]}, &heard));
  ASSERT_EQ(heard.size(), 2u);
  EXPECT_TRUE(heard[0].push_need().have());
  EXPECT_TRUE(heard[1].has_done());
  EXPECT_EQ(node.Stored().size(), 2u);
}

TEST(ReceivePush, AnEmptyTreeIsATree) {
  Node node;
  Laptop laptop;
  laptop.Scan();
  for (int i = 0; i < 2; ++i) {
    const auto outcome = node.Push(laptop);
    ASSERT_OK(outcome);
    EXPECT_EQ(outcome->was_there, i == 1);
  }
  TempDir work;
  EXPECT_OK(CopyStoredTree(node.trees, laptop.digest(), work.Sub("work")));
}

TEST(ReceivePush, TakesFilesFromOtherPlacesThanTheirPaths) {
  Laptop shape;
  shape.dir.Write("x/a", "first");
  shape.dir.Write("y", "second");
  shape.Scan();
  Laptop places;
  places.dir.Write("p", "first");
  places.dir.Write("q/r", "second");
  places.manifest = shape.manifest;
  PushTarget target;
  target.sources = {"", "p", "q/r"};
  Node node;
  ASSERT_OK(node.Push(places, target));
  node.ExpectWhole(shape.digest());
  // Other content at that place counts as a changed file.
  places.dir.Write("p", "other");
  Node second;
  EXPECT_THAT(second.Push(places, target).status(), StatusIs(absl::StatusCode::kAborted));
  target.sources.pop_back();
  EXPECT_THAT(second.Push(places, target).status(), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ReceivePush, TwoPushesOfTheSameTreeAtOnceAreBothRight) {
  SampleLaptop laptop;
  for (int round = 0; round < 10; ++round) {
    Node node;
    absl::Status other;
    std::thread second([&] { other = node.Push(laptop).status(); });
    EXPECT_OK(node.Push(laptop));
    second.join();
    EXPECT_OK(other);
    node.ExpectWhole(laptop.digest());
    EXPECT_EQ(node.Stored().size(), 2u);
    EXPECT_TRUE(node.Staged().empty());
  }
}

// Both pushes hear that the content is missing before one of them stores it.
TEST(ReceivePush, TheSlowerOfTwoPushesFindsTheTreeThere) {
  SampleLaptop laptop;
  const auto frames = laptop.Frames();
  Node node;
  ASSERT_OK(MakeDirectories(node.trees));
  absl::Status inner;
  bool nested = false;
  file_ops::SetFaultHook([&](file_ops::Op op, const std::string& path) {
    if (op == file_ops::Op::kRename && BaseName(path) == laptop.digest() && !nested) {
      nested = true;
      inner = ReceiveScript(node, frames);
    }
    return 0;
  });
  const absl::Status outer = ReceiveScript(node, frames);
  file_ops::SetFaultHook(nullptr);
  ASSERT_TRUE(nested);
  EXPECT_OK(inner);
  EXPECT_OK(outer);
  node.ExpectWhole(laptop.digest());
  EXPECT_EQ(node.Stored().size(), 2u);
}

TEST(ReceivePush, AStreamCutAtAnyFrameStoresNothingAndKeepsWhatCame) {
  SampleLaptop laptop;
  const auto frames = laptop.Frames();
  for (size_t count = 0; count < frames.size(); ++count) {
    Node node;
    EXPECT_FALSE(
        ReceiveScript(node, {frames.begin(), frames.begin() + static_cast<long>(count)}).ok())
        << count;
    EXPECT_TRUE(node.Stored().empty()) << count;
    // A later try can use it only after the manifest is there.
    EXPECT_EQ(node.Staged().size(), count < 2 ? 0u : 1u) << count;
    const auto outcome = node.Push(laptop);
    ASSERT_OK(outcome) << count;
    const bool all = count + 1 == frames.size();
    EXPECT_EQ(outcome->sent.bytes == 0, all) << count;
    EXPECT_TRUE(node.Staged().empty());
    node.ExpectWhole(laptop.digest());
  }
}

TEST(ReceivePush, AnyFileOperationMayFailAndTheNextTrySucceeds) {
  SampleLaptop laptop;
  const std::string bytes = Encode(laptop.Frames());
  for (const bool for_ever : {false, true}) {
    for (int n = 0;; ++n) {
      Node node;
      ScriptedPeer peer(bytes);
      absl::Status status;
      int operations = 0;
      {
        const FailingFiles failing(n, for_ever);
        status = ReceivePush(node.root, peer.in_fd(), peer.out_fd());
        operations = failing.operations();
      }
      node.ExpectWholeOrNothing(laptop.digest());
      if (operations <= n) {
        EXPECT_OK(status);
        EXPECT_GT(n, 20);
        break;
      }
      const auto outcome = node.Push(laptop);
      ASSERT_OK(outcome) << n;
      node.ExpectWhole(laptop.digest());
      EXPECT_EQ(node.Stored().size(), 2u) << n;
      EXPECT_TRUE(node.Staged().empty() || outcome->was_there) << n;
    }
  }
}

// Receives in a separate process that is killed before file operation number `n`. Returns true when
// it got that far.
bool KilledAtOperation(const Node& node, const std::string& bytes, int n) {
  ScriptedPeer peer(bytes);
  const pid_t pid = fork();
  if (pid == 0) {
    int operation = 0;
    file_ops::SetFaultHook([&](file_ops::Op, const std::string&) {
      if (operation++ == n) raise(SIGKILL);
      return 0;
    });
    _exit(ReceivePush(node.root, peer.in_fd(), peer.out_fd()).ok() ? 0 : 1);
  }
  int result = 0;
  EXPECT_EQ(waitpid(pid, &result, 0), pid);
  if (WIFSIGNALED(result)) return true;
  EXPECT_EQ(WEXITSTATUS(result), 0);
  return false;
}

TEST(ReceivePush, KilledAtAnyFileOperationLeavesWhatTheNextOneGoesOnWith) {
  SampleLaptop laptop;
  const std::string bytes = Encode(laptop.Frames());
  size_t left_behind = 0;
  int64_t taken_over = 0;
  int n = 0;
  for (;; ++n) {
    Node node;
    if (!KilledAtOperation(node, bytes, n)) break;
    left_behind += node.Staged().size();
    if (n % 4 == 0) {
      EXPECT_OK(RemoveAbandonedPushes(node.root));
      EXPECT_TRUE(node.Staged().empty());
    }
    node.ExpectWholeOrNothing(laptop.digest());
    const auto outcome = node.Push(laptop);
    ASSERT_OK(outcome) << n;
    taken_over += outcome->sent.bytes < laptop.manifest.content_bytes() ? 1 : 0;
    node.ExpectWhole(laptop.digest());
    EXPECT_TRUE(node.Staged().empty() || outcome->was_there) << n;
  }
  EXPECT_GT(n, 20);
  EXPECT_GT(left_behind, 10u);
  EXPECT_GT(taken_over, 5);
}

TEST(ReceivePush, APushInProgressIsNotCleanedUp) {
  SampleLaptop laptop;
  Node node;
  ASSERT_OK(MakeDirectories(node.trees));
  int cleanings = 0;
  file_ops::SetFaultHook([&](file_ops::Op op, const std::string& path) {
    if (op == file_ops::Op::kOpen && path == "src/main.py") {
      ++cleanings;
      EXPECT_OK(RemoveAbandonedPushes(node.root));
    }
    return 0;
  });
  EXPECT_OK(ReceiveScript(node, laptop.Frames()));
  file_ops::SetFaultHook(nullptr);
  EXPECT_EQ(cleanings, 1);
  node.ExpectWhole(laptop.digest());
}

}  // namespace
}  // namespace gpuctl
