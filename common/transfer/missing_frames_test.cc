#include "common/transfer/missing_frames.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/matchers.h"
#include "tests/support/scripted_peer.h"
#include "tests/support/transfer_peers.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;
using gpuctl::v1::TransferFrame;

// Returns a file whose content does not matter.
FileEntry Sized(absl::string_view path, int64_t size) {
  FileEntry entry = FileOf(path, "");
  std::string hashes;
  for (int64_t part = 0; part < PartCount(size); ++part) hashes += Sha256Of(absl::StrCat(part));
  entry.set_size(size);
  SetHashes(hashes, entry);
  return entry;
}

// Returns d, d/large (three parts), d/small, empty and small.
Manifest Sample() {
  return ManifestOf({DirectoryOf("d"), Sized("d/large", 2 * kPartBytes + 1), Sized("d/small", 7),
                     Sized("empty", 0), Sized("small", kPartBytes)});
}

using PieceTuple = std::tuple<int64_t, int64_t, int64_t>;
std::vector<PieceTuple> PiecesOf(const MissingContent& missing, const Manifest& manifest) {
  std::vector<PieceTuple> pieces;
  missing.ForEachPiece(manifest, [&](const Piece& piece) {
    pieces.emplace_back(piece.index, piece.offset, piece.length);
  });
  return pieces;
}

absl::StatusOr<MissingContent> Carried(const MissingContent& missing, const Manifest& manifest,
                                       std::string* token = nullptr, size_t* frames = nullptr) {
  ScriptedPeer writer("");
  EXPECT_THAT(WriteMissing(writer.channel(), missing, "the token"), IsOk());
  if (frames != nullptr) *frames = Decode(writer.Heard()).size();
  ScriptedPeer reader(writer.Heard());
  return ReadMissing(reader.channel(), manifest, token);
}

TEST(MissingFrames, TravelInEveryShape) {
  const Manifest manifest = Sample();
  for (int shape = 0; shape < 32; ++shape) {
    MissingContent missing(manifest.size());
    if ((shape & 1) != 0) missing.AddPart(1, 0, 3);
    if ((shape & 2) != 0) missing.AddPart(1, 2, 3);
    if ((shape & 4) != 0) missing.AddFile(2);
    if ((shape & 8) != 0) missing.AddFile(4);
    if ((shape & 16) != 0) missing.AddPart(1, 1, 3);
    std::string token;
    const auto carried = Carried(missing, manifest, &token);
    ASSERT_THAT(carried, IsOk());
    EXPECT_EQ(PiecesOf(*carried, manifest), PiecesOf(missing, manifest)) << shape;
    EXPECT_EQ(token, "the token");
  }
}

TEST(MissingFrames, OfALongListAreSeveral) {
  std::vector<FileEntry> entries;
  for (int i = 0; i < 300'000; ++i) entries.push_back(FileOf(absl::StrCat(1'000'000 + i), "x"));
  entries.push_back(Sized("z", 250'000 * kPartBytes));
  const Manifest manifest = ManifestOf(entries);
  MissingContent missing(manifest.size());
  for (int64_t i = 0; i < 300'000; i += 2) missing.AddFile(i);
  for (int64_t part = 0; part < 250'000; part += 2) missing.AddPart(300'000, part, 250'000);
  size_t frames = 0;
  const auto carried = Carried(missing, manifest, nullptr, &frames);
  ASSERT_THAT(carried, IsOk());
  EXPECT_GT(frames, 3u);
  EXPECT_TRUE(PiecesOf(*carried, manifest) == PiecesOf(missing, manifest));
}

TEST(ReadMissing, RefusesWhatDoesNotFitTheManifest) {
  const Manifest manifest = Sample();
  const auto read = [&](const std::vector<TransferFrame>& frames) {
    ScriptedPeer peer(Encode(frames));
    return ReadMissing(peer.channel(), manifest, nullptr);
  };
  const auto partial = [](uint32_t index, const std::vector<uint32_t>& parts) {
    TransferFrame frame = MissingFrame({});
    auto* added = frame.mutable_missing()->add_partial();
    added->set_index(index);
    for (const uint32_t number : parts) added->add_parts(number);
    return frame;
  };
  constexpr uint32_t kMost = 0xffffffff;
  EXPECT_THAT(read({MissingFrame({0, 5})}), IsOk());
  EXPECT_EQ(PiecesOf(*read({MissingFrame({0, 5})}), manifest).size(), 5u);
  EXPECT_THAT(read({partial(1, {0, 3})}), IsOk());
  for (const TransferFrame& bad : {MissingFrame({0, 6}),
                                   MissingFrame({5, 1}),
                                   MissingFrame({kMost, 1}),
                                   MissingFrame({1, kMost}),
                                   MissingFrame({kMost, kMost}),
                                   MissingFrame({1}),
                                   MissingFrame({2, 1, 1, 1}),
                                   MissingFrame({2, 2, 3, 1}),
                                   partial(5, {}),
                                   partial(kMost, {0, 1}),
                                   partial(1, {0, 4}),
                                   partial(1, {3, 1}),
                                   partial(1, {kMost, 1}),
                                   partial(1, {1, kMost}),
                                   partial(1, {0}),
                                   partial(0, {0, 1}),
                                   partial(3, {0, 1}),
                                   partial(2, {1, 1}),
                                   partial(1, {1, 1, 0, 1}),
                                   NeedFrame(),
                                   DoneFrame()}) {
    EXPECT_THAT(read({bad}), StatusIs(kInvalid)) << bad.ShortDebugString();
  }
  EXPECT_THAT(read({DoneFrame(absl::StatusCode::kAborted)}), StatusIs(absl::StatusCode::kAborted));
  TransferFrame more = MissingFrame({1, 1});
  more.mutable_missing()->set_last(false);
  EXPECT_THAT(read({more}), StatusIs(absl::StatusCode::kUnavailable));
  // A peer that repeats the same entries would cost endless time.
  EXPECT_THAT(read({more, more}), StatusIs(kInvalid));
}

}  // namespace
}  // namespace gpuctl
