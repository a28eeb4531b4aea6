#include "agent/receive.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "agent/tree_store.h"
#include "common/files.h"
#include "common/job_layout.h"
#include "common/manifest.h"
#include "common/sha256.h"
#include "common/staging_dir.h"
#include "common/transfer.h"
#include "tests/matchers.h"
#include "tests/scripted_peer.h"
#include "tests/temp_dir.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;
using gpuctl::v1::Manifest;
using gpuctl::v1::TransferFrame;

// A laptop's tree, and the frames that push it.
struct Laptop {
  Laptop() {
    dir.Write("src/main.py", "print('hello')\n", 0755);
    dir.Write("empty", "");
    dir.Write("big", std::string(2 * kFileDataBytes + 3, 'b'));
    EXPECT_EQ(symlink("src/main.py", dir.Sub("link").c_str()), 0);
    manifest = ScanTree(dir.path()).value();
    digest = ManifestDigest(manifest);
    frames = FramesOf(manifest, digest);
  }

  std::vector<TransferFrame> FramesOf(const Manifest& of, const std::string& named) const {
    ScriptedPeer peer("");
    TransferFrame begin;
    begin.mutable_push_begin()->set_manifest_digest(named);
    EXPECT_THAT(peer.channel().Write(begin), IsOk());
    EXPECT_THAT(WriteManifest(peer.channel(), of), IsOk());
    EXPECT_THAT(SendFiles(peer.channel(), dir.path(), manifest, nullptr), IsOk());
    EXPECT_THAT(peer.channel().WriteDone(absl::OkStatus()), IsOk());
    return Decode(peer.Heard());
  }

  TempDir dir;
  Manifest manifest;
  std::string digest;
  std::vector<TransferFrame> frames;
};

struct Node {
  TempDir dir;
  std::string root = dir.Sub("root");
  std::string trees = RootPaths(root).trees;

  std::vector<std::string> Stored() const {
    return ListDirectory(trees).value_or(std::vector<std::string>());
  }
  // What is stored is whole, or not there; nothing else is in the store but, perhaps, a manifest
  // whose tree did not make it.
  void ExpectWholeOrNothing(const Laptop& laptop) const {
    if (HasStoredTree(trees, laptop.digest)) ExpectWhole(laptop);
    for (const std::string& name : Stored()) {
      EXPECT_TRUE(name == laptop.digest || name == absl::StrCat(laptop.digest, ".manifest"))
          << name;
    }
  }
  void ExpectWhole(const Laptop& laptop) const {
    ASSERT_TRUE(HasStoredTree(trees, laptop.digest));
    EXPECT_EQ(ManifestDigest(ScanTree(JoinPath(trees, laptop.digest)).value()), laptop.digest);
    TempDir work;
    EXPECT_THAT(CopyStoredTree(trees, laptop.digest, work.Sub("work")), IsOk());
    EXPECT_EQ(ManifestDigest(ScanTree(work.Sub("work")).value()), laptop.digest);
  }
};

absl::Status ReceiveScript(const Node& node, const std::vector<TransferFrame>& frames,
                           std::vector<TransferFrame>* heard = nullptr) {
  ScriptedPeer peer(Encode(frames));
  absl::Status status = Receive(node.root, peer.in_fd(), peer.out_fd());
  if (heard != nullptr) *heard = Decode(peer.Heard());
  return status;
}

// A real push over a socket pair.
absl::Status Push(const Node& node, const Laptop& laptop) {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  UniqueFd ours(fds[0]);
  std::thread server([&, fd = fds[1]] {
    UniqueFd theirs(fd);
    (void)Receive(node.root, theirs.get(), theirs.get());
  });
  FrameChannel channel(ours.get(), ours.get());
  absl::Status status =
      PushTree(channel, laptop.dir.path(), laptop.manifest, laptop.digest, nullptr);
  ours.reset();
  server.join();
  return status;
}

TEST(Receive, StoresATreeOnce) {
  Laptop laptop;
  Node node;
  ASSERT_THAT(Push(node, laptop), IsOk());
  node.ExpectWhole(laptop);
  std::vector<TransferFrame> heard;
  ASSERT_THAT(ReceiveScript(node, {laptop.frames[0]}, &heard), IsOk());
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_TRUE(heard[0].push_need().have());
  EXPECT_EQ(node.Stored().size(), 2u);
}

TEST(Receive, AnEmptyTreeIsATree) {
  Node node;
  const Manifest empty;
  TransferFrame begin;
  begin.mutable_push_begin()->set_manifest_digest(ManifestDigest(empty));
  for (int i = 0; i < 2; ++i) {
    ScriptedPeer writer("");
    ASSERT_THAT(writer.channel().Write(begin), IsOk());
    ASSERT_THAT(WriteManifest(writer.channel(), empty), IsOk());
    ASSERT_THAT(writer.channel().WriteDone(absl::OkStatus()), IsOk());
    ScriptedPeer peer(writer.Heard());
    ASSERT_THAT(Receive(node.root, peer.in_fd(), peer.out_fd()), IsOk());
  }
  TempDir work;
  EXPECT_THAT(CopyStoredTree(node.trees, ManifestDigest(empty), work.Sub("work")), IsOk());
}

TEST(Receive, TwoPushesOfTheSameTreeAtOnceAreBothRight) {
  Laptop laptop;
  for (int round = 0; round < 10; ++round) {
    Node node;
    absl::Status other;
    std::thread second([&] { other = Push(node, laptop); });
    EXPECT_THAT(Push(node, laptop), IsOk());
    second.join();
    EXPECT_THAT(other, IsOk());
    node.ExpectWhole(laptop);
    EXPECT_EQ(node.Stored().size(), 2u);
  }
}

// Both have been told that the content is missing before either has stored it.
TEST(Receive, TheSlowerOfTwoPushesFindsTheTreeThere) {
  Laptop laptop;
  Node node;
  ASSERT_THAT(MakeDirectories(node.trees), IsOk());
  absl::Status inner;
  bool nested = false;
  file_ops::SetFaultHook([&](file_ops::Op op, const std::string& path) {
    if (op == file_ops::Op::kRename && BaseName(path) == laptop.digest && !nested) {
      nested = true;
      inner = ReceiveScript(node, laptop.frames);
    }
    return 0;
  });
  const absl::Status outer = ReceiveScript(node, laptop.frames);
  file_ops::SetFaultHook(nullptr);
  ASSERT_TRUE(nested);
  EXPECT_THAT(inner, IsOk());
  EXPECT_THAT(outer, IsOk());
  node.ExpectWhole(laptop);
  EXPECT_EQ(node.Stored().size(), 2u);
}

TEST(Receive, AStreamCutAtAnyFrameStoresNothing) {
  Laptop laptop;
  for (size_t count = 0; count < laptop.frames.size(); ++count) {
    Node node;
    EXPECT_FALSE(ReceiveScript(node, {laptop.frames.begin(),
                                      laptop.frames.begin() + static_cast<long>(count)})
                     .ok())
        << count;
    EXPECT_TRUE(node.Stored().empty()) << count;
  }
}

TEST(Receive, RefusesHostileInput) {
  Laptop laptop;
  const std::string pattern(64, 'a');
  std::vector<std::vector<TransferFrame>> scripts;
  for (const std::string& digest :
       {std::string(), std::string("../../../etc"), std::string(64, '/'), std::string(64, 'A'),
        std::string(63, 'a'), std::string(65, 'a')}) {
    scripts.push_back(laptop.FramesOf(laptop.manifest, digest));
  }
  scripts.push_back(laptop.FramesOf(laptop.manifest, pattern));  // another tree's digest
  for (const std::string& path : {std::string("../f"), std::string("/tmp/f"),
                                  std::string("a/../../f"), std::string("z\0f", 3)}) {
    Manifest manifest;
    FileEntry& entry = *manifest.add_entries();
    entry.set_path(path);
    entry.set_kind(FileEntry::KIND_FILE);
    entry.set_size(2 * kFileDataBytes + 3);
    entry.set_sha256(Sha256Of(std::string(2 * kFileDataBytes + 3, 'b')));
    scripts.push_back(laptop.FramesOf(manifest, ManifestDigest(manifest)));
  }
  Manifest through_symlink;
  FileEntry& link = *through_symlink.add_entries();
  link.set_path("a");
  link.set_kind(FileEntry::KIND_SYMLINK);
  link.set_symlink_target("/tmp");
  *through_symlink.add_entries() = laptop.manifest.entries(1);
  through_symlink.mutable_entries(1)->set_path("a/f");
  scripts.push_back(laptop.FramesOf(through_symlink, ManifestDigest(through_symlink)));
  std::vector<TransferFrame> goes_on = laptop.frames;
  goes_on.insert(goes_on.end() - 1, laptop.frames[2]);
  scripts.push_back(goes_on);
  scripts.push_back({laptop.frames[1]});
  for (const auto& script : scripts) {
    Node node;
    std::vector<TransferFrame> heard;
    EXPECT_FALSE(ReceiveScript(node, script, &heard).ok());
    ASSERT_FALSE(heard.empty());
    EXPECT_NE(heard.back().done().code(), 0);
    EXPECT_TRUE(node.Stored().empty());
  }
  Node node;
  ScriptedPeer huge(std::string("\xff\xff\xff\xff rest"));
  EXPECT_THAT(Receive(node.root, huge.in_fd(), huge.out_fd()),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(Receive, RefusesContentWithAWrongHash) {
  Laptop laptop;
  Node node;
  auto frames = laptop.frames;
  for (TransferFrame& frame : frames) {
    if (frame.has_file_data()) frame.mutable_file_data()->mutable_data()->back() ^= 1;
  }
  EXPECT_THAT(ReceiveScript(node, frames), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_TRUE(node.Stored().empty());
}

TEST(Receive, AnyFileOperationMayFailAndTheNextTrySucceeds) {
  Laptop laptop;
  for (const bool for_ever : {false, true}) {
    for (int n = 0;; ++n) {
      Node node;
      ScriptedPeer peer(Encode(laptop.frames));
      int operation = 0;
      file_ops::SetFaultHook([&](file_ops::Op, const std::string&) {
        const int current = operation++;
        return current == n || (for_ever && current > n) ? ENOSPC : 0;
      });
      const absl::Status status = Receive(node.root, peer.in_fd(), peer.out_fd());
      file_ops::SetFaultHook(nullptr);
      node.ExpectWholeOrNothing(laptop);
      if (operation <= n) {
        EXPECT_THAT(status, IsOk());
        EXPECT_GT(n, 20);
        break;
      }
      EXPECT_THAT(Push(node, laptop), IsOk()) << n;
      node.ExpectWhole(laptop);
      EXPECT_EQ(node.Stored().size(), 2u) << n;
    }
  }
}

// Receives in a process of its own that is killed before file operation number `n`. Returns whether
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
    _exit(Receive(node.root, peer.in_fd(), peer.out_fd()).ok() ? 0 : 1);
  }
  int result = 0;
  EXPECT_EQ(waitpid(pid, &result, 0), pid);
  if (WIFSIGNALED(result)) return true;
  EXPECT_EQ(WEXITSTATUS(result), 0);
  return false;
}

TEST(Receive, KilledAtAnyFileOperationLeavesWhatTheNextOneCleansUp) {
  Laptop laptop;
  const std::string bytes = Encode(laptop.frames);
  int64_t left_behind = 0;
  int n = 0;
  for (;; ++n) {
    Node node;
    if (!KilledAtOperation(node, bytes, n)) break;
    const auto names = node.Stored();
    left_behind += std::count_if(names.begin(), names.end(), [](const std::string& name) {
      return name.rfind(".gpuctl-partial-", 0) == 0;
    });
    if (n % 2 == 0) {  // by the server's start, or by the next push
      EXPECT_THAT(RemoveAbandonedPushes(node.root), IsOk());
      node.ExpectWholeOrNothing(laptop);
    }
    ASSERT_THAT(Push(node, laptop), IsOk()) << n;
    node.ExpectWhole(laptop);
    for (const std::string& name : node.Stored()) {
      EXPECT_NE(name.rfind(".gpuctl-partial-", 0), 0u) << n;
    }
  }
  EXPECT_GT(n, 20);
  EXPECT_GT(left_behind, 10);
}

TEST(Receive, APushInProgressIsNotCleanedUp) {
  Laptop laptop;
  Node node;
  ASSERT_THAT(MakeDirectories(node.trees), IsOk());
  int cleanings = 0;
  file_ops::SetFaultHook([&](file_ops::Op op, const std::string& path) {
    if (op == file_ops::Op::kOpen && path == "src/main.py") {
      ++cleanings;
      EXPECT_THAT(RemoveAbandonedPushes(node.root), IsOk());
    }
    return 0;
  });
  EXPECT_THAT(ReceiveScript(node, laptop.frames), IsOk());
  file_ops::SetFaultHook(nullptr);
  EXPECT_EQ(cleanings, 1);
  node.ExpectWhole(laptop);
}

TEST(CopyStoredTree, SaysWhenItIsNotThereOrNotWhole) {
  Laptop laptop;
  Node node;
  TempDir work;
  const std::string to = work.Sub("work");
  EXPECT_THAT(CopyStoredTree(node.trees, laptop.digest, to), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(CopyStoredTree(node.trees, "../trees", to), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_THAT(Push(node, laptop), IsOk());
  const std::string manifest = absl::StrCat(JoinPath(node.trees, laptop.digest), ".manifest");
  const std::string bytes = ReadFileToString(manifest).value();
  ASSERT_THAT(WriteFileAtomic(manifest, bytes.substr(0, bytes.size() - 1)), IsOk());
  EXPECT_THAT(CopyStoredTree(node.trees, laptop.digest, to), StatusIs(absl::StatusCode::kDataLoss));
  ASSERT_THAT(RemoveTree(manifest), IsOk());
  EXPECT_THAT(CopyStoredTree(node.trees, laptop.digest, to), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_THAT(Push(node, laptop), IsOk());  // heals it
  node.ExpectWhole(laptop);
  ASSERT_EQ(truncate(JoinPath(node.trees, laptop.digest + "/big").c_str(), 5), 0);
  EXPECT_THAT(CopyStoredTree(node.trees, laptop.digest, to), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_TRUE(work.Names().empty());
}

}  // namespace
}  // namespace gpuctl
