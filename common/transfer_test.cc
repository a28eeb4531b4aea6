#include "common/transfer.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <zstd.h>

#include <csignal>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/sha256.h"
#include "tests/matchers.h"
#include "tests/scripted_peer.h"
#include "tests/temp_dir.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;
using gpuctl::v1::Manifest;
using gpuctl::v1::TransferFrame;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnavailable = absl::StatusCode::kUnavailable;

TransferFrame DataFrame(int64_t index, int64_t offset, absl::string_view data) {
  TransferFrame frame;
  frame.mutable_file_data()->set_index(index);
  frame.mutable_file_data()->set_offset(offset);
  frame.mutable_file_data()->set_data(std::string(data));
  return frame;
}

TransferFrame PartFrame(absl::string_view data, bool last) {
  TransferFrame frame;
  frame.mutable_manifest_part()->set_data(std::string(data));
  frame.mutable_manifest_part()->set_last(last);
  return frame;
}

TransferFrame DoneFrame(absl::StatusCode code = absl::StatusCode::kOk) {
  TransferFrame frame;
  frame.mutable_done()->set_code(static_cast<int>(code));
  frame.mutable_done()->set_message("because");
  return frame;
}

std::string Compressed(const std::string& bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 1));
  return out;
}

FileEntry File(absl::string_view path, absl::string_view content) {
  FileEntry entry;
  entry.set_path(std::string(path));
  entry.set_kind(FileEntry::KIND_FILE);
  entry.set_mode(0640);
  entry.set_size(static_cast<int64_t>(content.size()));
  entry.set_sha256(Sha256Of(content));
  return entry;
}

// What `gpuctl-agent send` says for the tree at `root`.
std::vector<TransferFrame> PullFrames(const std::string& root) {
  const Manifest manifest = ScanTree(root).value();
  ScriptedPeer peer("");
  EXPECT_THAT(WriteManifest(peer.channel(), manifest), IsOk());
  EXPECT_THAT(SendFiles(peer.channel(), root, manifest, nullptr), IsOk());
  EXPECT_THAT(peer.channel().WriteDone(absl::OkStatus()), IsOk());
  return Decode(peer.Heard());
}

TEST(FrameChannel, CarriesFramesOfEverySize) {
  std::vector<TransferFrame> frames;
  for (const size_t size : {1u, 2u, 127u, 128u, 65536u, 1u << 20}) {
    frames.push_back(DataFrame(3, 5, std::string(size, 'd')));
  }
  ScriptedPeer peer(Encode(frames));
  for (const TransferFrame& frame : frames) {
    const auto read = peer.channel().Read();
    ASSERT_THAT(read, IsOk());
    EXPECT_EQ(read->file_data().data(), frame.file_data().data());
  }
  EXPECT_THAT(peer.channel().Read(), StatusIs(kUnavailable));
}

TEST(FrameChannel, RefusesTooLargeFramesBothWays) {
  ScriptedPeer peer("");
  EXPECT_THAT(peer.channel().Write(DataFrame(0, 0, std::string(kMaxFrameBytes, 'x'))),
              StatusIs(absl::StatusCode::kInternal));
  // Nothing behind the length: it is refused before anything is waited for or allocated.
  for (const std::string& length :
       {std::string("\xff\xff\xff\xff"), std::string("\x01\x10\x10\x00", 4),
        std::string("\x00\x00\x00\x80", 4)}) {
    ScriptedPeer hostile(length);
    EXPECT_THAT(hostile.channel().Read(), StatusIs(kInvalid));
  }
}

TEST(FrameChannel, AFrameCutAnywhereIsTheEndOfTheStream) {
  const std::string bytes = Encode({DataFrame(1, 2, "some data")});
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    ScriptedPeer peer(bytes.substr(0, cut));
    EXPECT_THAT(peer.channel().Read(), StatusIs(kUnavailable)) << cut;
  }
}

TEST(FrameChannel, RefusesWhatIsNoFrame) {
  for (const std::string& bytes : {std::string(4, '\0'), std::string("\x02\0\0\0\xff\xff", 6),
                                   std::string("\x02\0\0\0\x7a\0", 6)}) {
    ScriptedPeer peer(bytes);
    EXPECT_THAT(peer.channel().Read(), StatusIs(kInvalid));
  }
}

TEST(FrameChannel, ReadOrErrorTurnsADoneIntoItsError) {
  ScriptedPeer peer(Encode({DoneFrame(), DoneFrame(absl::StatusCode::kResourceExhausted)}));
  EXPECT_THAT(peer.channel().ReadOrError(), IsOk());
  EXPECT_THAT(peer.channel().ReadOrError(),
              StatusIs(absl::StatusCode::kResourceExhausted, "because"));
}

TEST(FrameChannel, DoneCarriesPathsOfAnyBytes) {
  ScriptedPeer writer("");
  ASSERT_THAT(writer.channel().WriteDone(absl::AbortedError("send \xff\xfe: changed")), IsOk());
  ScriptedPeer reader(writer.Heard());
  EXPECT_THAT(reader.channel().ReadOrError(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("changed")));
}

TEST(FrameChannel, AClosedPeerIsUnavailable) {
  signal(SIGPIPE, SIG_IGN);
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  UniqueFd ours(fds[0]);
  close(fds[1]);
  FrameChannel channel(ours.get(), ours.get());
  ASSERT_THAT(channel.Write(DoneFrame()), IsOk());
  EXPECT_THAT(channel.Flush(), StatusIs(kUnavailable));
}

TEST(ManifestTransfer, CarriesLargeManifestsInParts) {
  Manifest manifest;
  for (int i = 0; i < 20'000; ++i) {
    *manifest.add_entries() = File(absl::StrCat("file-", 100'000 + i), absl::StrCat(i));
  }
  ScriptedPeer writer("");
  ASSERT_THAT(WriteManifest(writer.channel(), manifest), IsOk());
  EXPECT_GT(Decode(writer.Heard()).size(), 2u);
  EXPECT_LT(writer.Heard().size(), SerializeManifest(manifest).size());
  ScriptedPeer reader(writer.Heard());
  const auto read = ReadManifest(reader.channel());
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(ManifestDigest(*read), ManifestDigest(manifest));
}

TEST(ManifestTransfer, RefusesWhatIsNoManifest) {
  const std::string whole = Compressed(SerializeManifest(Manifest()));
  for (const std::vector<TransferFrame>& frames : std::vector<std::vector<TransferFrame>>{
           {PartFrame("not zstd", true)},
           {PartFrame("", true)},
           {PartFrame(whole.substr(0, whole.size() - 1), true)},
           {PartFrame(Compressed("not a manifest"), true)},
           {PartFrame(whole, false), DataFrame(0, 0, "x")},
           {DoneFrame()},
       }) {
    ScriptedPeer peer(Encode(frames));
    EXPECT_THAT(ReadManifest(peer.channel()), StatusIs(kInvalid));
  }
  ScriptedPeer cut(Encode({PartFrame(whole, false)}));
  EXPECT_THAT(ReadManifest(cut.channel()), StatusIs(kUnavailable));
}

TEST(ManifestTransfer, ADecompressionBombStopsAtTheLimit) {
  const std::string bomb = Compressed(std::string(kMaxManifestBytes + 1, 'a'));
  ASSERT_LT(bomb.size(), 100'000u);
  ScriptedPeer peer(Encode({PartFrame(bomb, true)}));
  EXPECT_THAT(ReadManifest(peer.channel()), StatusIs(kInvalid, HasSubstr("too large")));
  // A frame that wants a window of gigabytes is refused for that alone.
  std::string wide("\x28\xb5\x2f\xfd\x00\xa8\x00\x00\x00", 9);
  ScriptedPeer window(Encode({PartFrame(wide, true)}));
  EXPECT_THAT(ReadManifest(window.channel()), StatusIs(kInvalid));
}

TEST(TransferFiles, BringATreeOver) {
  TempDir from;
  from.Write("a/script", "#!/bin/sh\n", 0755);
  from.Write("a/empty", "");
  from.Write("big", std::string(3 * kFileDataBytes + 17, 'b'));
  ASSERT_EQ(symlink("../big", from.Sub("a/link").c_str()), 0);
  const Manifest manifest = ScanTree(from.path()).value();
  int64_t sent = 0;
  ScriptedPeer sender("");
  ASSERT_THAT(SendFiles(sender.channel(), from.path(), manifest, [&](int64_t n) { sent = n; }),
              IsOk());
  ASSERT_THAT(sender.channel().Flush(), IsOk());
  EXPECT_EQ(sent, ContentBytes(manifest));

  TempDir to;
  int64_t received = 0;
  ScriptedPeer receiver(sender.Heard());
  ASSERT_THAT(
      ReceiveFiles(receiver.channel(), to.path(), manifest, [&](int64_t n) { received = n; }),
      IsOk());
  EXPECT_EQ(received, ContentBytes(manifest));
  EXPECT_EQ(ManifestDigest(ScanTree(to.path()).value()), ManifestDigest(manifest));
}

TEST(SendFiles, AFileThatChangedIsNamedBeforeItsLastByte) {
  TempDir from;
  const std::string content(2 * kFileDataBytes, 'c');
  from.Write("dir/f", content);
  const Manifest manifest = ScanTree(from.path()).value();
  const auto expect_aborted = [&] {
    ScriptedPeer peer("");
    EXPECT_THAT(SendFiles(peer.channel(), from.path(), manifest, nullptr),
                StatusIs(absl::StatusCode::kAborted, HasSubstr("dir/f")));
    ASSERT_THAT(peer.channel().Flush(), IsOk());
    EXPECT_LT(Decode(peer.Heard()).size(), 2u);
  };
  std::string other = content;
  other.back() = 'd';
  from.Write("dir/f", other);  // same size
  expect_aborted();
  from.Write("dir/f", content + "more");
  expect_aborted();
  ASSERT_THAT(RemoveTree(from.Sub("dir/f")), IsOk());
  expect_aborted();
  ASSERT_EQ(symlink("/etc/passwd", from.Sub("dir/f").c_str()), 0);
  expect_aborted();
}

// Receives `frames` for `manifest` and checks that nothing appeared outside the root.
absl::Status ReceiveInto(const Manifest& manifest, const std::vector<TransferFrame>& frames) {
  TempDir dir;
  EXPECT_THAT(MakeDirectories(dir.Sub("root")), IsOk());
  ScriptedPeer peer(Encode(frames));
  const absl::Status status = ReceiveFiles(peer.channel(), dir.Sub("root"), manifest, nullptr);
  EXPECT_EQ(dir.Names(), std::vector<std::string>{"root"});
  return status;
}

TEST(ReceiveFiles, RefusesContentThatIsNotWhatWasPromised) {
  Manifest manifest;
  *manifest.add_entries() = File("a", "aaaa");
  *manifest.add_entries() = File("b", "bbbb");
  const TransferFrame a = DataFrame(0, 0, "aaaa");
  EXPECT_THAT(ReceiveInto(manifest, {a, DataFrame(1, 0, "bbbb")}), IsOk());
  EXPECT_THAT(ReceiveInto(manifest, {a, DataFrame(1, 0, "bb"), DataFrame(1, 2, "bb")}), IsOk());
  EXPECT_THAT(ReceiveInto(manifest, {a, DataFrame(1, 0, "bbbX")}),
              StatusIs(absl::StatusCode::kDataLoss));
  for (const TransferFrame& bad :
       {DataFrame(0, 0, "bbbb"), DataFrame(2, 0, "bbbb"), DataFrame(-1, 0, "bbbb"),
        DataFrame(1, 1, "bbb"), DataFrame(1, -1, "bbbb"), DataFrame(1, 0, "bbbbb"),
        DataFrame(1, 0, ""), PartFrame("x", true), DoneFrame()}) {
    EXPECT_THAT(ReceiveInto(manifest, {a, bad}), StatusIs(kInvalid)) << bad.ShortDebugString();
  }
  EXPECT_THAT(ReceiveInto(manifest, {a}), StatusIs(kUnavailable));
  EXPECT_THAT(ReceiveInto(manifest, {a, DoneFrame(absl::StatusCode::kAborted)}),
              StatusIs(absl::StatusCode::kAborted));
}

// Manifests that validation refuses; should one slip past it, the file system calls refuse it too.
TEST(ReceiveFiles, WritesNothingOutsideEvenWithAnUnvalidatedManifest) {
  TempDir outside;
  for (const std::string& path :
       {absl::StrCat(outside.path(), "/f"), std::string("../f"), std::string("d/../../f")}) {
    Manifest manifest;
    *manifest.add_entries() = File(path, "x");
    EXPECT_FALSE(ReceiveInto(manifest, {DataFrame(0, 0, "x")}).ok()) << path;
  }
  Manifest through_symlink;
  FileEntry& link = *through_symlink.add_entries();
  link.set_path("l");
  link.set_kind(FileEntry::KIND_SYMLINK);
  link.set_symlink_target(outside.path());
  *through_symlink.add_entries() = File("l/f", "x");
  EXPECT_FALSE(ReceiveInto(through_symlink, {DataFrame(1, 0, "x")}).ok());
  EXPECT_TRUE(outside.Names().empty());
}

TEST(PullTree, PublishesTheWholeTreeAtOnce) {
  TempDir from;
  from.Write("step-1/weights", std::string(kFileDataBytes + 1, 'w'));
  from.Write("step-1/manifest.json", "{}");
  TempDir to;
  ScriptedPeer peer(Encode(PullFrames(from.Sub("step-1"))));
  const auto pulled = PullTree(peer.channel(), "j-1", "ckpt/step-1", to.Sub("got"),
                               [&](int64_t) { EXPECT_FALSE(PathExists(to.Sub("got"))); });
  ASSERT_THAT(pulled, IsOk());
  EXPECT_EQ(to.Names(), std::vector<std::string>{"got"});
  EXPECT_EQ(ManifestDigest(ScanTree(to.Sub("got")).value()), ManifestDigest(*pulled));
  const auto asked = Decode(peer.Heard());
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].pull_begin().job_id(), "j-1");
  EXPECT_EQ(asked[0].pull_begin().path(), "ckpt/step-1");
}

TEST(PullTree, AStreamCutAtAnyFrameLeavesNothing) {
  TempDir from;
  from.Write("a", std::string(2 * kFileDataBytes, 'a'));
  from.Write("b/c", "c");
  const auto frames = PullFrames(from.path());
  ASSERT_GE(frames.size(), 5u);
  for (size_t count = 0; count < frames.size(); ++count) {
    TempDir to;
    ScriptedPeer peer(Encode({frames.begin(), frames.begin() + static_cast<long>(count)}));
    EXPECT_THAT(PullTree(peer.channel(), "j-1", "work", to.Sub("got"), nullptr),
                StatusIs(kUnavailable))
        << count;
    EXPECT_TRUE(to.Names().empty()) << count;
  }
}

TEST(PullTree, DoesNotTouchWhatIsThere) {
  TempDir from;
  from.Write("f", "new");
  TempDir to;
  to.Write("got", "mine");
  ScriptedPeer peer(Encode(PullFrames(from.path())));
  EXPECT_THAT(PullTree(peer.channel(), "j-1", "work", to.Sub("got"), nullptr),
              StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(ReadFileToString(to.Sub("got")).value(), "mine");
  EXPECT_EQ(peer.Heard(), "");
}

TEST(PullTree, AnyFileOperationMayFailAndTheNextTrySucceeds) {
  TempDir from;
  from.Write("a", "aaaa");
  from.Write("b/c", "cccc");
  const std::string bytes = Encode(PullFrames(from.path()));
  for (const bool for_ever : {false, true}) {
    for (int n = 0;; ++n) {
      TempDir to;
      const std::string target = to.Sub("got");
      ScriptedPeer peer(bytes);
      int operation = 0;
      file_ops::SetFaultHook([&](file_ops::Op, const std::string&) {
        const int current = operation++;
        return current == n || (for_ever && current > n) ? ENOSPC : 0;
      });
      const auto pulled = PullTree(peer.channel(), "j-1", "work", target, nullptr);
      file_ops::SetFaultHook(nullptr);
      if (operation <= n) {
        ASSERT_THAT(pulled, IsOk());
        EXPECT_GT(n, 8);
        break;
      }
      // The directory's last sync may fail after the rename; what is there is whole all the same.
      if (PathExists(target)) {
        EXPECT_EQ(ManifestDigest(ScanTree(target).value()),
                  ManifestDigest(ScanTree(from.path()).value()));
        continue;
      }
      EXPECT_THAT(pulled, StatusIs(absl::StatusCode::kResourceExhausted)) << n;
      ScriptedPeer again(bytes);
      EXPECT_THAT(PullTree(again.channel(), "j-1", "work", target, nullptr), IsOk()) << n;
      EXPECT_EQ(to.Names(), std::vector<std::string>{"got"}) << n;
    }
  }
}

TEST(PushTree, SaysWhatTheNodeSaid) {
  TempDir from;
  from.Write("f", "content");
  const Manifest manifest = ScanTree(from.path()).value();
  const std::string digest = ManifestDigest(manifest);
  TransferFrame need;
  need.mutable_push_need()->set_have(false);
  TransferFrame have;
  have.mutable_push_need()->set_have(true);
  const auto push = [&](const std::vector<TransferFrame>& answers) {
    ScriptedPeer peer(Encode(answers));
    return PushTree(peer.channel(), from.path(), manifest, digest, nullptr);
  };
  EXPECT_THAT(push({have}), IsOk());
  EXPECT_THAT(push({need, DoneFrame()}), IsOk());
  EXPECT_THAT(push({need, DoneFrame(absl::StatusCode::kResourceExhausted)}),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(push({DoneFrame(absl::StatusCode::kPermissionDenied)}),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(push({need}), StatusIs(kUnavailable));
  EXPECT_THAT(push({}), StatusIs(kUnavailable));
  EXPECT_THAT(push({need, need}), StatusIs(kInvalid));
  EXPECT_THAT(push({DataFrame(0, 0, "x")}), StatusIs(kInvalid));
}

TEST(PushTree, HearsWhyTheNodeStoppedListening) {
  signal(SIGPIPE, SIG_IGN);
  TempDir from;
  from.Write("f", std::string(16 << 20, 'x'));
  const Manifest manifest = ScanTree(from.path()).value();
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  UniqueFd ours(fds[0]);
  std::thread node([&] {
    UniqueFd theirs(fds[1]);
    FrameChannel channel(theirs.get(), theirs.get());
    ASSERT_THAT(channel.Read(), IsOk());
    TransferFrame need;
    need.mutable_push_need();
    ASSERT_THAT(channel.Write(need), IsOk());
    ASSERT_THAT(channel.WriteDone(absl::ResourceExhaustedError("disk full")), IsOk());
  });
  FrameChannel channel(ours.get(), ours.get());
  EXPECT_THAT(PushTree(channel, from.path(), manifest, ManifestDigest(manifest), nullptr),
              StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
  node.join();
}

TEST(PushTree, TellsTheNodeThatAFileChanged) {
  TempDir from;
  from.Write("f", "content");
  const Manifest manifest = ScanTree(from.path()).value();
  from.Write("f", "CONTENT");
  TransferFrame need;
  need.mutable_push_need();
  ScriptedPeer peer(Encode({need}));
  EXPECT_THAT(PushTree(peer.channel(), from.path(), manifest, ManifestDigest(manifest), nullptr),
              StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(Decode(peer.Heard()).back().done().code(),
            static_cast<int>(absl::StatusCode::kAborted));
}

}  // namespace
}  // namespace gpuctl
