#include "common/tree/missing_content.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/sha256.h"
#include "tests/support/transfer_peers.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;
using ::testing::ElementsAre;
using ::testing::FieldsAre;
using ::testing::Pair;

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

TEST(MissingContent, AllOfATreeInPieces) {
  const Manifest manifest = Sample();
  const MissingContent missing = MissingContent::AllOf(manifest);
  EXPECT_EQ(PiecesOf(missing, manifest), (std::vector<PieceTuple>{{1, 0, kPartBytes},
                                                                  {1, kPartBytes, kPartBytes},
                                                                  {1, 2 * kPartBytes, 1},
                                                                  {2, 0, 7},
                                                                  {4, 0, kPartBytes}}));
  EXPECT_EQ(missing.Bytes(manifest), manifest.content_bytes());
  EXPECT_FALSE(missing.Has(0));
  EXPECT_FALSE(missing.Has(3));
  EXPECT_TRUE(MissingContent(5).empty());
}

TEST(MissingContent, PartsComeAndGo) {
  const Manifest manifest = Sample();
  MissingContent missing = MissingContent::AllOf(manifest);
  missing.RemovePart(1, 1, 3);
  missing.RemovePart(2, 0, 1);
  missing.RemoveFile(4);
  EXPECT_TRUE(missing.Has(1));
  EXPECT_FALSE(missing.Has(1, 1));
  EXPECT_EQ(PiecesOf(missing, manifest),
            (std::vector<PieceTuple>{{1, 0, kPartBytes}, {1, 2 * kPartBytes, 1}}));
  missing.RemovePart(1, 0, 3);
  missing.RemovePart(1, 2, 3);
  missing.RemovePart(1, 2, 3);  // a second time: nothing happens
  EXPECT_TRUE(missing.empty());
  missing.AddPart(1, 2, 3);
  EXPECT_EQ(missing.Bytes(manifest), 1);
}

TEST(MissingContent, RunsOfFilesAndOfParts) {
  MissingContent missing(7);
  for (const int64_t file : {0, 1, 3, 6}) missing.AddFile(file);
  for (const int64_t part : {0, 2, 3}) missing.AddPart(4, part, 5);
  missing.AddPart(5, 1, 2);
  std::vector<std::pair<uint32_t, uint32_t>> files;
  std::vector<std::tuple<uint32_t, uint32_t, uint32_t>> parts;
  missing.ForEachRun([&](uint32_t first, uint32_t number) { files.emplace_back(first, number); },
                     [&](uint32_t index, uint32_t first, uint32_t number) {
                       parts.emplace_back(index, first, number);
                     });
  EXPECT_THAT(files, ElementsAre(Pair(0, 2), Pair(3, 1), Pair(6, 1)));
  EXPECT_THAT(parts, ElementsAre(FieldsAre(4, 0, 1), FieldsAre(4, 2, 2), FieldsAre(5, 1, 1)));
}

}  // namespace
}  // namespace gpuctl
