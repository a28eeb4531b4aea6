#include "common/transfer/pull.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>

#include "absl/strings/match.h"
#include "common/files/files.h"
#include "common/transfer/frame_channel.h"
#include "common/transfer/pieces.h"
#include "common/tree/missing_content.h"
#include "common/tree/tree.h"
#include "tests/support/matchers.h"
#include "tests/support/scripted_peer.h"
#include "tests/support/temp_dir.h"
#include "tests/support/transfer_peers.h"

namespace gpuctl {
namespace {

using gpuctl::v1::TransferFrame;

std::vector<TransferFrame> ManifestFrames(const Manifest& manifest) {
  ScriptedPeer peer("");
  EXPECT_THAT(WriteManifest(peer.channel(), manifest), IsOk());
  return Decode(peer.Heard());
}

// Returns what `gpuctl-agent send` answers for the tree at `root` to requests for everything, in
// order.
std::vector<TransferFrame> PullFrames(const std::string& root) {
  const Manifest manifest = ScanTree(root).value();
  std::vector<TransferFrame> frames = ManifestFrames(manifest);
  ScriptedPeer peer("");
  const UniqueFd fd(file_ops::Open(root, O_RDONLY | O_DIRECTORY));
  PieceReader reader(fd.get());
  MissingContent::AllOf(manifest).ForEachPiece(manifest, [&](const Piece& piece) {
    EXPECT_THAT(reader.Send(peer.channel(), piece, manifest[piece.index].path()), IsOk());
  });
  EXPECT_THAT(peer.channel().WriteDone(absl::OkStatus()), IsOk());
  for (const TransferFrame& frame : Decode(peer.Heard())) frames.push_back(frame);
  return frames;
}

absl::StatusOr<Pulled> Pull(const TransferStream& stream, const TempDir& to,
                            const std::string& have = "",
                            const TransferProgress& progress = nullptr) {
  PullSubject subject;
  subject.job_id = "j-1";
  subject.path = "ckpt/step-1";
  subject.have = have;
  TransferOptions options;
  options.progress = progress;
  return PullTree(stream, subject, to.path(), Clock::Real(), options);
}

// Pulls from a node that sends `frames` into `to`/got.
absl::Status PullTo(const std::vector<TransferFrame>& frames, const TempDir& to) {
  ScriptedNode node(Encode(frames));
  const auto pulled = Pull(node.stream(), to);
  if (!pulled.ok()) return pulled.status();
  return PublishPulled(*pulled->tree, to.Sub("got"));
}

// Returns the names that a user sees.
std::vector<std::string> VisibleIn(const TempDir& dir) {
  std::vector<std::string> names;
  for (const std::string& name : dir.Names()) {
    if (!absl::StartsWith(name, ".gpuctl-partial-")) names.push_back(name);
  }
  return names;
}

TEST(PullTree, PublishesTheWholeTreeAtOnce) {
  TempDir from;
  from.Write("step-1/weights", RandomBytes(static_cast<size_t>(kPartBytes) + 1, 1));
  from.Write("step-1/manifest.json", "{}");
  from.Write("step-1/empty", "");
  ASSERT_THAT(MakeDirectories(from.Sub("step-1/void"), 0750), IsOk());
  ASSERT_EQ(symlink("weights", from.Sub("step-1/link").c_str()), 0);
  TempDir to;
  int64_t received = 0;
  ScriptedNode node(Encode(PullFrames(from.Sub("step-1"))));
  {
    const auto pulled = Pull(node.stream(), to, "", [&](const TransferCount& count) {
      received = count.bytes;
      EXPECT_TRUE(VisibleIn(to).empty());
    });
    ASSERT_THAT(pulled, IsOk());
    EXPECT_EQ(received, kPartBytes + 3);
    EXPECT_EQ(pulled->received.bytes, received);
    EXPECT_TRUE(VisibleIn(to).empty());
    ASSERT_THAT(PublishPulled(*pulled->tree, to.Sub("got")), IsOk());
  }
  EXPECT_EQ(to.Names(), std::vector<std::string>{"got"});
  EXPECT_EQ(ScanTree(to.Sub("got")).value().Digest(),
            ScanTree(from.Sub("step-1")).value().Digest());
  const auto asked = Decode(node.Heard());
  EXPECT_EQ(asked[0].pull_begin().job_id(), "j-1");
  EXPECT_EQ(asked[0].pull_begin().path(), "ckpt/step-1");
  int pieces = 0;
  for (const TransferFrame& frame : asked) pieces += frame.want().pieces_size();
  EXPECT_EQ(pieces, 3);
  EXPECT_TRUE(asked.back().has_done());
}

TEST(PullTree, AStreamCutAtAnyFrameShowsNothing) {
  TempDir from;
  from.Write("a", RandomBytes(2 * static_cast<size_t>(kFileDataBytes), 1));
  from.Write("b/c", "c");
  const auto frames = PullFrames(from.path());
  ASSERT_GE(frames.size(), 5u);
  for (size_t count = 0; count < frames.size(); ++count) {
    TempDir to;
    EXPECT_THAT(PullTo({frames.begin(), frames.begin() + static_cast<long>(count)}, to),
                StatusIs(kUnavailable))
        << count;
    EXPECT_TRUE(VisibleIn(to).empty()) << count;
  }
}

TEST(PullTree, AsksOnlyForWhatIsNotThere) {
  const std::string large = RandomBytes(2 * static_cast<size_t>(kPartBytes) + 5, 1);
  TempDir from;
  from.Write("changed", "new");
  from.Write("large", large);
  from.Write("same", "same");
  TempDir have;
  have.Write("changed", "old");
  std::string other = large;
  other[9'000'000] ^= 1;  // in part 1
  have.Write("large", other);
  have.Write("same", "same");
  const Manifest manifest = ScanTree(from.path()).value();
  std::vector<TransferFrame> frames = ManifestFrames(manifest);
  frames.push_back(DataFrame(0, 0, "new"));
  for (int64_t at = kPartBytes; at < 2 * kPartBytes; at += kFileDataBytes) {
    frames.push_back(DataFrame(
        1, at, large.substr(static_cast<size_t>(at), static_cast<size_t>(kFileDataBytes))));
  }
  frames.push_back(DoneFrame());
  TempDir to;
  ScriptedNode node(Encode(frames));
  const auto pulled = Pull(node.stream(), to, have.path());
  ASSERT_THAT(pulled, IsOk());
  EXPECT_EQ(pulled->received.bytes, kPartBytes + 3);
  ASSERT_THAT(PublishPulled(*pulled->tree, to.Sub("got")), IsOk());
  EXPECT_EQ(ScanTree(to.Sub("got")).value().Digest(), manifest.Digest());
  EXPECT_TRUE(ReadFileToString(have.Sub("large")).value() == other);  // it was copied, not moved
}

TEST(PullTree, RefusesWhatWasNotAskedFor) {
  TempDir from;
  from.Write("a", "aaaa");
  from.Write("b", "bbbb");
  const Manifest manifest = ScanTree(from.path()).value();
  const auto pull = [&](const std::vector<TransferFrame>& content) {
    std::vector<TransferFrame> frames = ManifestFrames(manifest);
    frames.insert(frames.end(), content.begin(), content.end());
    TempDir to;
    const absl::Status status = PullTo(frames, to);
    EXPECT_EQ(VisibleIn(to).empty(), !status.ok());
    return status;
  };
  const TransferFrame a = DataFrame(0, 0, "aaaa");
  const TransferFrame b = DataFrame(1, 0, "bbbb");
  EXPECT_THAT(pull({a, b, DoneFrame()}), IsOk());
  EXPECT_THAT(pull({b, a, DoneFrame()}), StatusIs(kInvalid));
  EXPECT_THAT(pull({a, a, b, DoneFrame()}), StatusIs(kInvalid));
  EXPECT_THAT(pull({a, b, b}), StatusIs(kInvalid));
  EXPECT_THAT(pull({a, DoneFrame()}), StatusIs(kInvalid));
  EXPECT_THAT(pull({a, NeedFrame()}), StatusIs(kInvalid));
  EXPECT_THAT(pull({a, DataFrame(2, 0, "bbbb")}), StatusIs(kInvalid));
  EXPECT_THAT(pull({a, DataFrame(1, 0, "bbbX")}), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(pull({a, DoneFrame(absl::StatusCode::kAborted)}),
              StatusIs(absl::StatusCode::kAborted, "because"));
  EXPECT_THAT(pull({a, b}), StatusIs(kUnavailable));
}

TEST(PullTree, RefusesManifestsThatLeadOutside) {
  for (const Manifest& manifest :
       {ManifestOf({FileOf("../f", "x")}), ManifestOf({FileOf("/tmp/f", "x")}),
        ManifestOf({FileOf("d/../../f", "x")}), ManifestOf({FileOf(std::string("z\0f", 3), "x")}),
        ManifestOf({FileOf("a", "x"), FileOf("a", "x")}),
        ManifestOf({SymlinkOf("a", "/tmp"), FileOf("a/f", "x")})}) {
    std::vector<TransferFrame> frames = ManifestFrames(manifest);
    frames.push_back(DataFrame(static_cast<uint32_t>(manifest.size() - 1), 0, "x"));
    frames.push_back(DoneFrame());
    TempDir to;
    EXPECT_THAT(PullTo(frames, to), StatusIs(kInvalid));
    EXPECT_TRUE(to.Names().empty());
  }
}

// Requests fill the direction to the node while answers fill the other one.
TEST(PullTree, LongPathsDoNotBlockIt) {
  TempDir from;
  const std::string deep = absl::StrCat(std::string(250, 'd'), "/", std::string(250, 'e'), "/",
                                        std::string(250, 'f'), "/", std::string(250, 'g'));
  for (int i = 0; i < 1200; ++i) {
    const std::string name = absl::StrCat(deep, "/", 1000 + i, std::string(200, 'x'));
    ASSERT_THAT(MakeDirectories(from.Sub(deep), 0755), IsOk());
    const UniqueFd fd(file_ops::Open(from.Sub(name), O_WRONLY | O_CREAT, 0644));
    ASSERT_THAT(WriteAll(fd.get(), RandomBytes(3000, static_cast<uint64_t>(i)), name), IsOk());
  }
  WireLimits limits;
  limits.buffer = 32 << 10;
  const auto wire = std::make_shared<Wire>(
      [&](int fd) {
        // As in `gpuctl-agent send`, it answers one request before it reads the next.
        FrameChannel channel(fd, fd);
        ASSERT_THAT(channel.Read(), IsOk());
        ASSERT_THAT(WriteManifest(channel, ScanTree(from.path()).value()), IsOk());
        const UniqueFd root(file_ops::Open(from.path(), O_RDONLY | O_DIRECTORY));
        PieceReader reader(root.get());
        while (true) {
          const auto frame = channel.Read();
          ASSERT_THAT(frame, IsOk());
          if (frame->has_done()) break;
          for (const auto& piece : frame->want().pieces()) {
            ASSERT_THAT(
                reader.Send(channel, {piece.index(), piece.offset(), piece.length()}, piece.path()),
                IsOk());
          }
          ASSERT_THAT(channel.Flush(), IsOk());
        }
        ASSERT_THAT(channel.WriteDone(absl::OkStatus()), IsOk());
      },
      limits);
  TempDir to;
  const auto pulled = Pull(StreamOf(wire), to);
  ASSERT_THAT(pulled, IsOk());
  EXPECT_EQ(pulled->received.bytes, 1200 * 3000);
}

TEST(PublishPulled, DoesNotTouchWhatIsThere) {
  TempDir from;
  from.Write("f", "new");
  TempDir to;
  to.Write("got", "mine");
  EXPECT_THAT(PullTo(PullFrames(from.path()), to), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(ReadFileToString(to.Sub("got")).value(), "mine");
  TempDir full;
  full.Write("got/f", "mine");
  EXPECT_THAT(PullTo(PullFrames(from.path()), full), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(ReadFileToString(full.Sub("got/f")).value(), "mine");
}

TEST(PullTree, AnyFileOperationMayFailAndTheNextTrySucceeds) {
  TempDir from;
  from.Write("a", "aaaa");
  from.Write("b/c", "cccc");
  from.Write("d", "");
  const auto frames = PullFrames(from.path());
  const std::string digest = ScanTree(from.path()).value().Digest();
  for (const bool for_ever : {false, true}) {
    for (int n = 0;; ++n) {
      TempDir to;
      ScriptedNode node(Encode(frames));
      const TransferStream stream = node.stream();
      int operation = 0;
      file_ops::SetFaultHook([&](file_ops::Op, const std::string&) {
        const int current = operation++;
        return current == n || (for_ever && current > n) ? ENOSPC : 0;
      });
      auto pulled = Pull(stream, to);
      absl::Status status = pulled.status();
      if (pulled.ok()) status = PublishPulled(*pulled->tree, to.Sub("got"));
      pulled = absl::CancelledError();
      file_ops::SetFaultHook(nullptr);
      // The directory's last sync may fail after the rename. The published directory is whole
      // anyway.
      if (PathExists(to.Sub("got"))) {
        EXPECT_EQ(ScanTree(to.Sub("got")).value().Digest(), digest);
        EXPECT_EQ(VisibleIn(to), std::vector<std::string>{"got"});
      } else {
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted)) << n;
        EXPECT_TRUE(VisibleIn(to).empty()) << n;
      }
      if (operation <= n) {
        ASSERT_THAT(status, IsOk());
        EXPECT_GT(n, 8);
        break;
      }
    }
  }
}

TEST(MergePulled, PutsFilesBesideWhatIsThere) {
  TempDir from;
  from.Write("both/new", "new", 0755);
  from.Write("both/replaced", "new");
  from.Write("fresh/deep/f", "new");
  ASSERT_EQ(symlink("new", from.Sub("both/link").c_str()), 0);
  TempDir to;
  to.Write("both/mine", "mine");
  to.Write("both/replaced", "old");
  ScriptedNode node(Encode(PullFrames(from.path())));
  {
    const auto pulled = Pull(node.stream(), to);
    ASSERT_THAT(pulled, IsOk());
    ASSERT_THAT(MergePulled(*pulled->tree, to.path()), IsOk());
  }
  EXPECT_EQ(to.Names(), (std::vector<std::string>{"both", "fresh"}));
  EXPECT_EQ(to.Names("both"), (std::vector<std::string>{"link", "mine", "new", "replaced"}));
  EXPECT_EQ(ReadFileToString(to.Sub("both/mine")).value(), "mine");
  EXPECT_EQ(ReadFileToString(to.Sub("both/replaced")).value(), "new");
  EXPECT_EQ(ReadFileToString(to.Sub("fresh/deep/f")).value(), "new");
}

TEST(MergePulled, DoesNotReplaceADirectoryByAFileNorTheOtherWayRound) {
  for (const bool file_at_home : {false, true}) {
    TempDir from;
    TempDir to;
    (file_at_home ? from : to).Write("x/f", "deep");
    (file_at_home ? to : from).Write("x", "flat");
    ScriptedNode node(Encode(PullFrames(from.path())));
    const auto pulled = Pull(node.stream(), to);
    ASSERT_THAT(pulled, IsOk());
    EXPECT_THAT(MergePulled(*pulled->tree, to.path()),
                StatusIs(absl::StatusCode::kFailedPrecondition));
    EXPECT_EQ(ReadFileToString(to.Sub(file_at_home ? "x" : "x/f")).value(),
              file_at_home ? "flat" : "deep");
  }
}

// Answers of a node that sends what was not asked for.
absl::Status PullSubjectFrom(const Manifest& manifest, bool is_file, const PullSubject& subject,
                             const TempDir& to, const TransferOptions& options = {}) {
  ScriptedPeer peer("");
  EXPECT_THAT(WriteManifest(peer.channel(), manifest, is_file), IsOk());
  ScriptedNode node(peer.Heard() + Encode({DataFrame(0, 0, "x"), DoneFrame()}));
  return PullTree(node.stream(), subject, to.path(), Clock::Real(), options).status();
}

TEST(PullTree, TakesOnlyWhatItAskedFor) {
  TempDir to;
  PullSubject named;
  named.job_id = "j-1";
  named.path = "work";
  named.files = {"out.txt", "x/y"};
  for (const auto& entry :
       {FileOf(".bashrc", "x"), DirectoryOf(".ssh"), SymlinkOf("x/y", "/etc/passwd"),
        DirectoryOf("x/y"), FileOf("x", "x")}) {
    EXPECT_FALSE(PullSubjectFrom(ManifestOf({entry}), false, named, to).ok()) << entry.path();
  }
  PullSubject file;
  file.job_id = "j-1";
  file.path = "work/out.txt";
  for (const auto& entry : {FileOf(".bashrc", "x"), SymlinkOf("out.txt", "/etc/passwd"),
                            DirectoryOf("out.txt"), FileOf("work/out.txt", "x")}) {
    EXPECT_FALSE(PullSubjectFrom(ManifestOf({entry}), true, file, to).ok()) << entry.path();
  }
  EXPECT_TRUE(to.Names().empty());
  EXPECT_THAT(PullSubjectFrom(ManifestOf({FileOf("out.txt", "x")}), true, file, to), IsOk());
}

TEST(MergePulled, NeverReplacesWhatIsNoFile) {
  for (const char* kind : {"pipe", "link"}) {
    TempDir from;
    from.Write("a", "content");
    TempDir to;
    ScriptedNode node(Encode(PullFrames(from.path())));
    const auto pulled = Pull(node.stream(), to);
    ASSERT_THAT(pulled, IsOk());
    ASSERT_THAT(MakeDirectories(to.Sub("got")), IsOk());
    const std::string path = to.Sub("got/a");
    ASSERT_EQ(kind == std::string("pipe") ? mkfifo(path.c_str(), 0600)
                                          : symlink("/nowhere", path.c_str()),
              0);
    EXPECT_THAT(MergePulled(*pulled->tree, to.Sub("got")),
                StatusIs(absl::StatusCode::kFailedPrecondition));
    struct stat info {};
    ASSERT_EQ(lstat(path.c_str(), &info), 0);
    EXPECT_FALSE(S_ISREG(info.st_mode));
  }
}

}  // namespace
}  // namespace gpuctl
