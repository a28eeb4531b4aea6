#include "common/transfer/pieces.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/tree/tree.h"
#include "tests/support/matchers.h"
#include "tests/support/scripted_peer.h"
#include "tests/support/temp_dir.h"
#include "tests/support/transfer_peers.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;
using gpuctl::v1::TransferFrame;
using ::testing::HasSubstr;

const auto kPart = static_cast<size_t>(kPartBytes);

UniqueFd OpenDirectory(const std::string& path) {
  UniqueFd fd(file_ops::Open(path, O_RDONLY | O_DIRECTORY));
  EXPECT_TRUE(fd.valid());
  return fd;
}

// Returns the frames for all content of `manifest`, read from the tree at `root`.
std::vector<TransferFrame> SendAll(const std::string& root, const Manifest& manifest) {
  const UniqueFd fd = OpenDirectory(root);
  ScriptedPeer peer("");
  PieceReader reader(fd.get());
  MissingContent::AllOf(manifest).ForEachPiece(manifest, [&](const Piece& piece) {
    EXPECT_THAT(reader.Send(peer.channel(), piece, manifest[piece.index].path()), IsOk());
  });
  EXPECT_THAT(peer.channel().Flush(), IsOk());
  return Decode(peer.Heard());
}

struct Written {
  absl::Status status;
  int pieces = 0;
};
Written WriteAllOf(const std::string& root, const Manifest& manifest,
                   const std::vector<TransferFrame>& frames,
                   PieceWriter::Cache cache = PieceWriter::Cache::kKeep) {
  const UniqueFd fd = OpenDirectory(root);
  PieceWriter writer(fd.get(), manifest, cache);
  Written written;
  for (const TransferFrame& frame : frames) {
    const auto complete = writer.Take(frame.file_data(), frame.file_data().data());
    if (!complete.ok()) {
      written.status = complete.status();
      return written;
    }
    written.pieces += *complete ? 1 : 0;
  }
  written.status = writer.Finish();
  return written;
}

// Writes into a fresh root and checks that nothing appeared beside it.
absl::Status WriteInto(const Manifest& manifest, const std::vector<TransferFrame>& frames) {
  TempDir dir;
  EXPECT_THAT(MakeDirectories(dir.Sub("root")), IsOk());
  const absl::Status status = WriteAllOf(dir.Sub("root"), manifest, frames).status;
  EXPECT_EQ(dir.Names(), std::vector<std::string>{"root"});
  return status;
}

int64_t BlocksOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(stat(path.c_str(), &info), 0);
  return int64_t{info.st_blocks} * 512;
}

TEST(Pieces, BringATreesContentOver) {
  TempDir from;
  from.Write("a/script", "#!/bin/sh\n", 0755);
  from.Write("large", RandomBytes(kPart + 17, 1));
  from.Write("middle", RandomBytes(3 * static_cast<size_t>(kFileDataBytes) + 17, 2));
  const Manifest manifest = ScanTree(from.path()).value();
  const auto frames = SendAll(from.path(), manifest);
  TempDir to;
  const Written written = WriteAllOf(to.path(), manifest, frames);
  ASSERT_THAT(written.status, IsOk());
  EXPECT_EQ(written.pieces, 4);
  for (const char* path : {"a/script", "large", "middle"}) {
    EXPECT_TRUE(ReadFileToString(to.Sub(path)).value() == ReadFileToString(from.Sub(path)).value());
  }
  struct stat info {};
  ASSERT_EQ(stat(to.Sub("a/script").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0755u);
}

TEST(Pieces, PartsComeInAnyOrder) {
  const std::string content = RandomBytes(2 * kPart + 100, 3);
  const Manifest manifest = ManifestOf({FileOf("f", content)});
  TempDir from;
  from.Write("f", content);
  const auto frames = SendAll(from.path(), manifest);
  const auto per_part = static_cast<long>(kPartBytes / kFileDataBytes);
  ASSERT_EQ(frames.size(), 2 * static_cast<size_t>(per_part) + 1);
  std::vector<TransferFrame> turned = {frames.back()};
  turned.insert(turned.end(), frames.begin() + per_part, frames.begin() + 2 * per_part);
  turned.insert(turned.end(), frames.begin(), frames.begin() + per_part);
  TempDir to;
  const Written written = WriteAllOf(to.path(), manifest, turned);
  ASSERT_THAT(written.status, IsOk());
  EXPECT_EQ(written.pieces, 3);
  EXPECT_TRUE(ReadFileToString(to.Sub("f")).value() == content);
  // Within a part they must be in order, because the hash is computed as they come.
  std::vector<TransferFrame> swapped = frames;
  std::swap(swapped[1], swapped[2]);
  EXPECT_THAT(WriteInto(manifest, swapped), StatusIs(kInvalid));
  std::vector<TransferFrame> mixed = frames;
  std::swap(mixed[1], mixed[static_cast<size_t>(per_part)]);
  EXPECT_THAT(WriteInto(manifest, mixed), StatusIs(kInvalid));
}

TEST(PieceReader, NamesAFileThatIsGoneOrShorterOrNoFileAnyMore) {
  TempDir from;
  const std::string content(2 * static_cast<size_t>(kFileDataBytes), 'c');
  from.Write("dir/f", content);
  const UniqueFd fd = OpenDirectory(from.path());
  const auto send = [&] {
    ScriptedPeer peer("");
    PieceReader reader(fd.get());
    return reader.Send(peer.channel(), {0, 0, static_cast<int64_t>(content.size())}, "dir/f");
  };
  ASSERT_THAT(send(), IsOk());
  const auto expect_aborted = [&] {
    EXPECT_THAT(send(), StatusIs(absl::StatusCode::kAborted, HasSubstr("dir/f")));
  };
  from.Write("dir/f", content.substr(1));
  expect_aborted();
  ASSERT_THAT(RemoveTree(from.Sub("dir/f")), IsOk());
  expect_aborted();
  ASSERT_EQ(symlink("/etc/passwd", from.Sub("dir/f").c_str()), 0);
  expect_aborted();
  ASSERT_THAT(RemoveTree(from.Sub("dir/f")), IsOk());
  ASSERT_EQ(mkfifo(from.Sub("dir/f").c_str(), 0600), 0);
  expect_aborted();
  ASSERT_THAT(RemoveTree(from.Sub("dir/f")), IsOk());
  ASSERT_THAT(MakeDirectories(from.Sub("dir/f")), IsOk());
  expect_aborted();
}

TEST(PieceReader, FollowsNoSymlinkThatTookADirectorysPlace) {
  TempDir from;
  from.Write("dir/f", "content");
  from.Write("other/f", "content");
  ASSERT_THAT(RemoveTree(from.Sub("dir")), IsOk());
  ASSERT_EQ(symlink("other", from.Sub("dir").c_str()), 0);
  const UniqueFd fd = OpenDirectory(from.path());
  ScriptedPeer peer("");
  PieceReader reader(fd.get());
  EXPECT_FALSE(reader.Send(peer.channel(), {0, 0, 7}, "dir/f").ok());
  EXPECT_EQ(peer.Heard(), "");
}

TEST(PieceWriter, RefusesContentThatIsNotWhatWasPromised) {
  const Manifest manifest =
      ManifestOf({FileOf("a", "aaaa"), FileOf("b", "bbbb"), DirectoryOf("d"), FileOf("e", ""),
                  SymlinkOf("l", "t"), FileOf("z", std::string(kPart + 4, 'z'))});
  const TransferFrame a = DataFrame(0, 0, "aaaa");
  EXPECT_THAT(WriteInto(manifest, {a, DataFrame(1, 0, "bbbb")}), IsOk());
  EXPECT_THAT(WriteInto(manifest, {DataFrame(1, 0, "bb"), DataFrame(1, 2, "bb"), a}), IsOk());
  EXPECT_THAT(WriteInto(manifest, {a, DataFrame(1, 0, "bbbX")}),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(WriteInto(manifest, {ZerosFrame(1, 0, 4)}), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(WriteInto(manifest, {DataFrame(5, kPartBytes, "zzzz")}), IsOk());
  TransferFrame both = ZerosFrame(1, 0, 2);
  both.mutable_file_data()->set_data("bb");
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const TransferFrame& bad : {DataFrame(6, 0, "bbbb"),
                                   DataFrame(0xffffffff, 0, "bbbb"),
                                   DataFrame(1, 1, "bbb"),
                                   DataFrame(1, -1, "bbbb"),
                                   DataFrame(1, 0, "bbbbb"),
                                   DataFrame(1, 0, ""),
                                   DataFrame(1, 4, "b"),
                                   DataFrame(1, kPartBytes, "b"),
                                   DataFrame(2, 0, "x"),
                                   DataFrame(3, 0, "x"),
                                   DataFrame(3, 0, ""),
                                   DataFrame(4, 0, "x"),
                                   ZerosFrame(1, 0, 5),
                                   ZerosFrame(1, 0, -1),
                                   ZerosFrame(1, 0, kMost),
                                   ZerosFrame(3, 0, 1),
                                   both,
                                   DataFrame(5, 1, "z"),
                                   DataFrame(5, kPartBytes, "zzzzz"),
                                   DataFrame(5, 2 * kPartBytes, "z"),
                                   ZerosFrame(5, 0, kPartBytes + 1),
                                   ZerosFrame(5, -kPartBytes, 4),
                                   DataFrame(5, kMost - kMost % kPartBytes, "z")}) {
    EXPECT_THAT(WriteInto(manifest, {a, bad}), StatusIs(kInvalid)) << bad.ShortDebugString();
  }
  EXPECT_THAT(WriteInto(manifest, {DataFrame(1, 0, "bb")}), StatusIs(kInvalid));
  EXPECT_THAT(WriteInto(manifest, {DataFrame(1, 0, "bb"), a}), StatusIs(kInvalid));
  EXPECT_THAT(WriteInto(manifest, {DataFrame(1, 0, "bb"), DataFrame(1, 0, "bb")}),
              StatusIs(kInvalid));
}

// Validation refuses these manifests. Without it the file system calls refuse them too.
TEST(PieceWriter, WritesNothingOutsideEvenWithAnUnvalidatedManifest) {
  TempDir outside;
  outside.Write("there", "mine");
  for (const std::string& path : {absl::StrCat(outside.path(), "/f"), std::string("../f"),
                                  std::string("d/../../f"), std::string("z\0/f", 4)}) {
    EXPECT_FALSE(WriteInto(ManifestOf({FileOf(path, "x")}), {DataFrame(0, 0, "x")}).ok()) << path;
  }
  // Somebody puts symlinks into the tree that is being written.
  TempDir root;
  ASSERT_EQ(symlink(outside.path().c_str(), root.Sub("l").c_str()), 0);
  ASSERT_EQ(symlink(outside.Sub("there").c_str(), root.Sub("f").c_str()), 0);
  const Manifest manifest =
      ManifestOf({FileOf("f", "x"), FileOf("l/f", "x"), FileOf("l/there", "x")});
  for (const uint32_t index : {0u, 1u, 2u}) {
    EXPECT_FALSE(WriteAllOf(root.path(), manifest, {DataFrame(index, 0, "x")}).status.ok());
  }
  EXPECT_EQ(outside.Names(), std::vector<std::string>{"there"});
  EXPECT_EQ(ReadFileToString(outside.Sub("there")).value(), "mine");
}

TEST(PieceWriter, WaitsForNoFifoAndWritesIntoNone) {
  TempDir root;
  ASSERT_EQ(mkfifo(root.Sub("f").c_str(), 0600), 0);
  const UniqueFd reader(open(root.Sub("f").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  EXPECT_FALSE(
      WriteAllOf(root.path(), ManifestOf({FileOf("f", "x")}), {DataFrame(0, 0, "x")}).status.ok());
}

TEST(PieceWriter, ReplacesWhatAnEarlierTryLeft) {
  const std::string large = std::string(kPart, '\0') + "end";
  const Manifest manifest = ManifestOf({FileOf("large", large), FileOf("small", "abc")});
  TempDir root;
  root.Write("small", "something longer");
  root.Write("large", std::string(kPart + 100, 'x'));
  const Written written = WriteAllOf(
      root.path(), manifest,
      {DataFrame(1, 0, "abc"), ZerosFrame(0, 0, kPartBytes), DataFrame(0, kPartBytes, "end")});
  ASSERT_THAT(written.status, IsOk());
  EXPECT_EQ(ReadFileToString(root.Sub("small")).value(), "abc");
  EXPECT_TRUE(ReadFileToString(root.Sub("large")).value() == large);
}

TEST(Pieces, ZerosTakeNoRoomOnTheWireNorOnTheDisk) {
  TempDir from;
  {
    const UniqueFd fd(file_ops::Open(from.Sub("f"), O_RDWR | O_CREAT));
    ASSERT_EQ(ftruncate(fd.get(), 4 * kPartBytes + 1000), 0);
    ASSERT_EQ(pwrite(fd.get(), "data", 4, kPartBytes + 300'000), 4);
    const UniqueFd small(file_ops::Open(from.Sub("small"), O_RDWR | O_CREAT));
    ASSERT_EQ(ftruncate(small.get(), 1 << 20), 0);
  }
  const Manifest manifest = ScanTree(from.path()).value();
  const auto frames = SendAll(from.path(), manifest);
  EXPECT_LT(Encode(frames).size(), static_cast<size_t>(kFileDataBytes) + 10'000);
  const auto expect_sparse = [&](const std::string& root) {
    EXPECT_TRUE(ReadFileToString(JoinPath(root, "f")).value() ==
                ReadFileToString(from.Sub("f")).value());
    EXPECT_TRUE(ReadFileToString(JoinPath(root, "small")).value() == std::string(1 << 20, '\0'));
    EXPECT_LE(BlocksOf(JoinPath(root, "f")), 2 * kFileDataBytes);
    EXPECT_EQ(BlocksOf(JoinPath(root, "small")), 0);
  };
  TempDir once;
  ASSERT_THAT(WriteAllOf(once.path(), manifest, frames).status, IsOk());
  expect_sparse(once.path());
  // Two streams share the file: the second one finds it in its full size.
  TempDir twice;
  const auto per_part = static_cast<long>(kPartBytes / kFileDataBytes);
  ASSERT_THAT(
      WriteAllOf(twice.path(), manifest, {frames.begin(), frames.begin() + per_part}).status,
      IsOk());
  ASSERT_THAT(WriteAllOf(twice.path(), manifest, {frames.begin() + per_part, frames.end()}).status,
              IsOk());
  expect_sparse(twice.path());
}

TEST(PieceWriter, LargeFilesPassByThePageCache) {
  TempDir from;
  {
    const UniqueFd fd(file_ops::Open(from.Sub("f"), O_RDWR | O_CREAT));
    ASSERT_EQ(ftruncate(fd.get(), 9 * kPartBytes + 1001), 0);
    // One part of data, zeros and data; one whole part; the rest.
    const std::string bytes = RandomBytes(kPart + 777, 4);
    for (const int64_t at : {int64_t{0}, kPartBytes / 2 + 5, 3 * kPartBytes + 1}) {
      ASSERT_EQ(pwrite(fd.get(), bytes.data(), bytes.size() / 4, at),
                static_cast<ssize_t>(bytes.size() / 4));
    }
    ASSERT_EQ(pwrite(fd.get(), bytes.data(), bytes.size(), 5 * kPartBytes),
              static_cast<ssize_t>(bytes.size()));
    ASSERT_EQ(pwrite(fd.get(), bytes.data(), 1001, 9 * kPartBytes), 1001);
  }
  const Manifest manifest = ScanTree(from.path()).value();
  const auto frames = SendAll(from.path(), manifest);
  TempDir to;
  ASSERT_THAT(WriteAllOf(to.path(), manifest, frames, PieceWriter::Cache::kPassByLargeFiles).status,
              IsOk());
  EXPECT_TRUE(ReadFileToString(to.Sub("f"), 1 << 28).value() ==
              ReadFileToString(from.Sub("f"), 1 << 28).value());
  EXPECT_LT(BlocksOf(to.Sub("f")), 5 * kPartBytes);
  // Broken content is refused also when it waits in a block.
  std::vector<TransferFrame> broken = frames;
  for (TransferFrame& frame : broken) {
    if (!frame.file_data().data().empty()) frame.mutable_file_data()->mutable_data()->front() ^= 1;
  }
  TempDir refused;
  EXPECT_THAT(
      WriteAllOf(refused.path(), manifest, broken, PieceWriter::Cache::kPassByLargeFiles).status,
      StatusIs(absl::StatusCode::kDataLoss));
}

TEST(MayCompress, KnowsWhatIsCompressedAlready) {
  for (const char* path :
       {"a.py", "data.csv", "noext", "dir.gz/file.txt", "model.safetensors.json"}) {
    EXPECT_TRUE(MayCompress(path)) << path;
  }
  for (const char* path : {"a.gz", "dir/MODEL.SAFETENSORS", "w.pt", "x.tar.zst"}) {
    EXPECT_FALSE(MayCompress(path)) << path;
  }
}

}  // namespace
}  // namespace gpuctl
