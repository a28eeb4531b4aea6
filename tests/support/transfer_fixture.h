// A laptop's tree and a node's root for tests of transfers between them, in one process.
#ifndef GPUCTL_TESTS_SUPPORT_TRANSFER_FIXTURE_H_
#define GPUCTL_TESTS_SUPPORT_TRANSFER_FIXTURE_H_

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/store/tree_store.h"
#include "agent/trees/receive.h"
#include "agent/trees/send.h"
#include "agent/trees/work_merge.h"
#include "common/files/files.h"
#include "common/files/staging_dir.h"
#include "common/job/job_layout.h"
#include "common/transfer/frame_channel.h"
#include "common/transfer/pieces.h"
#include "common/transfer/pull.h"
#include "common/transfer/push.h"
#include "common/transfer/transfer.h"
#include "common/tree/manifest.h"
#include "common/tree/missing_content.h"
#include "common/tree/tree.h"
#include "tests/support/matchers.h"
#include "tests/support/scripted_peer.h"
#include "tests/support/temp_dir.h"
#include "tests/support/transfer_peers.h"

namespace gpuctl {

// Puts temporary directories into memory where possible, for tests with many thousand syncs.
// Returns true, so that it can be called before main.
inline bool UseMemoryFileSystem() {
  if (access("/dev/shm", W_OK | X_OK) == 0) setenv("TMPDIR", "/dev/shm", 1);
  return true;
}

inline std::string DigestOf(const std::string& tree) { return ScanTree(tree).value().Digest(); }

// A directory of the laptop.
struct Laptop {
  void Scan() { manifest = ScanTree(dir.path()).value(); }
  std::string digest() const { return manifest.Digest(); }

  // Returns the laptop's frames to push `of` under the digest `named`, with all content.
  std::vector<gpuctl::v1::TransferFrame> FramesOf(const Manifest& of, const std::string& named,
                                                  const PushTarget& target = {}) const {
    ScriptedPeer peer("");
    gpuctl::v1::TransferFrame begin;
    begin.mutable_push_begin()->set_manifest_digest(named);
    begin.mutable_push_begin()->set_job_id(target.job_id);
    begin.mutable_push_begin()->set_into(target.into);
    EXPECT_OK(peer.channel().Write(begin));
    EXPECT_OK(WriteManifest(peer.channel(), of));
    const UniqueFd fd(file_ops::Open(dir.path(), O_RDONLY | O_DIRECTORY));
    PieceReader reader(fd.get());
    MissingContent::AllOf(manifest).ForEachPiece(manifest, [&](const Piece& piece) {
      EXPECT_OK(reader.Send(peer.channel(), piece, manifest[piece.index].path()));
    });
    EXPECT_OK(peer.channel().WriteDone(absl::OkStatus()));
    return Decode(peer.Heard());
  }
  std::vector<gpuctl::v1::TransferFrame> Frames() const { return FramesOf(manifest, digest()); }

  TempDir dir;
  Manifest manifest;
};

struct SampleLaptop : Laptop {
  SampleLaptop() {
    dir.Write("src/main.py", "print('hello')\n", 0755);
    dir.Write("empty", "");
    dir.Write("big", std::string(2 * static_cast<size_t>(kFileDataBytes) + 3, 'b'));
    EXPECT_EQ(symlink("src/main.py", dir.Sub("link").c_str()), 0);
    Scan();
  }
};

struct Node {
  TempDir dir;
  std::string root = dir.Sub("root");
  std::string trees = RootPaths(root).trees;
  JobPaths job = RootPaths(root).Job("j-1");
  absl::Duration silence = kPeerSilence;  // after which a push gives way to another

  // Return connections to `gpuctl-agent receive` and `gpuctl-agent send`.
  std::shared_ptr<Wire> ToReceive(WireLimits limits = {}) const {
    return std::make_shared<Wire>(
        [root = root, silence = silence](int fd) { (void)ReceivePush(root, fd, fd, silence); },
        limits);
  }
  std::shared_ptr<Wire> ToSend(WireLimits limits = {}) const {
    return std::make_shared<Wire>([root = root](int fd) { (void)SendPull(root, fd, fd); }, limits);
  }

  // Push and pull over one stream. `up` and `down` get the bytes on the wire.
  absl::StatusOr<PushOutcome> Push(const Laptop& laptop, const PushTarget& target = {},
                                   WireLimits limits = {}, int64_t* up = nullptr) const {
    const auto wire = ToReceive(limits);
    auto outcome =
        PushTree(StreamOf(wire), laptop.dir.path(), laptop.manifest, target, Clock::Real(), {});
    wire->Close();
    if (up != nullptr) *up = wire->up();
    return outcome;
  }
  absl::StatusOr<PushOutcome> PushWork(const Laptop& laptop, bool overwrite = false,
                                       const std::string& into = "") const {
    PushTarget target;
    target.job_id = "j-1";
    target.overwrite = overwrite;
    target.into = into;
    return Push(laptop, target);
  }
  // Pulls into the subdirectory "got" of `to`.
  absl::Status Pull(const std::string& path, const TempDir& to, WireLimits limits = {},
                    int64_t* down = nullptr) const {
    const auto wire = ToSend(limits);
    PullSubject subject;
    subject.job_id = "j-1";
    subject.path = path;
    auto pulled = PullTree(StreamOf(wire), subject, to.path(), Clock::Real(), {});
    wire->Close();
    if (down != nullptr) *down = wire->down();
    return pulled.ok() ? PublishPulled(*pulled->tree, to.Sub("got")) : pulled.status();
  }

  // Return names in the store: trees and manifests, and unfinished ones.
  std::vector<std::string> Stored() const { return Names(trees, false); }
  std::vector<std::string> Staged() const { return Names(trees, true); }
  static std::vector<std::string> Names(const std::string& path, bool staged) {
    std::vector<std::string> names;
    for (const std::string& name : ListDirectory(path).value_or(std::vector<std::string>())) {
      if (absl::StartsWith(name, kStagingPrefix) ? staged : !staged && name[0] != '.') {
        names.push_back(name);
      }
    }
    return names;
  }
  void ExpectWhole(const std::string& digest) const {
    ASSERT_TRUE(HasStoredTree(trees, digest));
    EXPECT_EQ(DigestOf(JoinPath(trees, digest)), digest);
    TempDir work;
    EXPECT_OK(CopyStoredTree(trees, digest, work.Sub("work")));
    EXPECT_EQ(DigestOf(work.Sub("work")), digest);
  }
  // Expects that the tree is whole or missing, and that the store has nothing else, except perhaps
  // the manifest of an unfinished tree.
  void ExpectWholeOrNothing(const std::string& digest) const {
    if (HasStoredTree(trees, digest)) ExpectWhole(digest);
    for (const std::string& name : Stored()) {
      EXPECT_TRUE(name == digest || name == absl::StrCat(digest, ".manifest")) << name;
    }
  }
};

// Serves a laptop that sends a script and does not listen.
inline absl::Status ReceiveScript(const Node& node,
                                  const std::vector<gpuctl::v1::TransferFrame>& frames,
                                  std::vector<gpuctl::v1::TransferFrame>* heard = nullptr) {
  ScriptedPeer peer(Encode(frames));
  absl::Status status = ReceivePush(node.root, peer.in_fd(), peer.out_fd());
  if (heard != nullptr) *heard = Decode(peer.Heard());
  return status;
}

// Makes file operation number `n` fail, or all from `n` on, while this object lives.
class FailingFiles {
 public:
  FailingFiles(int n, bool for_ever) {
    file_ops::SetFaultHook([this, n, for_ever](file_ops::Op, const std::string&) {
      const int current = operations_++;
      return current == n || (for_ever && current > n) ? ENOSPC : 0;
    });
  }
  ~FailingFiles() { file_ops::SetFaultHook(nullptr); }
  int operations() const { return operations_; }

 private:
  std::atomic<int> operations_{0};
};

// Returns everything below a directory: path to content, "-> target" or "/".
inline std::map<std::string, std::string> Snapshot(const std::string& path) {
  std::map<std::string, std::string> found;
  const Manifest manifest = ScanTree(path).value();
  for (const gpuctl::v1::FileEntry& entry : manifest) {
    std::string what = "/";
    if (entry.kind() == gpuctl::v1::FileEntry::KIND_SYMLINK) {
      what = absl::StrCat("-> ", entry.symlink_target());
    } else if (entry.kind() == gpuctl::v1::FileEntry::KIND_FILE) {
      what = ReadFileToString(JoinPath(path, entry.path())).value();
    }
    found[entry.path()] = what;
  }
  return found;
}

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_TRANSFER_FIXTURE_H_
