// Building a large file from an older version in which everything lies elsewhere.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/delta/gear.h"
#include "common/delta/offers.h"
#include "common/files/files.h"
#include "common/tree/tree.h"
#include "common/tree/tree_builder.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/transfer_peers.h"

namespace gpuctl {
namespace {

constexpr auto kWholePart = static_cast<size_t>(kPartBytes);

// Two versions of a file, and a builder of the newer one that has met the older one.
struct TwoVersions {
  TwoVersions(absl::string_view older, std::string newer) : content(std::move(newer)) {
    old_dir.Write("f", older);
    new_dir.Write("f", content);
    manifest = ScanTree(new_dir.path()).value();
    builder = TreeBuilder::Begin(to.path(), manifest).value();
    const UniqueFd fd(file_ops::Open(old_dir.path(), O_RDONLY | O_DIRECTORY));
    EXPECT_OK(builder->TakeSamePaths(fd.get()));
  }

  std::vector<LostParts> WithAnchors() const {
    std::vector<LostParts> files = builder->PartsToFind();
    for (LostParts& file : files) {
      for (LostPart& part : file.parts) {
        part.anchor = FindAnchor(
            absl::string_view(content)
                .substr(static_cast<size_t>(part.offset), static_cast<size_t>(part.length))
                .substr(0, kAnchorRangeBytes));
      }
    }
    return files;
  }
  void TakeMoved() { EXPECT_OK(builder->TakeMoved(WithAnchors())); }

  // Returns the content bytes of the missing parts that no offer has.
  int64_t BytesToSend() const {
    const std::vector<gpuctl::v1::Offer> offers = builder->MakeOffers();
    int64_t bytes = 0;
    builder->missing().ForEachPiece(manifest, [&](const Piece& piece) {
      std::vector<const gpuctl::v1::Offer*> of_part;
      for (const gpuctl::v1::Offer& offer : offers) {
        EXPECT_OK(CheckOffer(offer));
        if (offer.part() == piece.offset / kPartBytes) of_part.push_back(&offer);
      }
      const auto part = absl::string_view(content).substr(static_cast<size_t>(piece.offset),
                                                          static_cast<size_t>(piece.length));
      for (const Segment& segment : MatchOffers(part, of_part)) {
        bytes += segment.from < 0 ? segment.length : 0;
      }
    });
    return bytes;
  }

  TempDir old_dir, new_dir, to;
  std::string content;
  Manifest manifest;
  std::unique_ptr<TreeBuilder> builder;
};

TEST(TakeMoved, FindsEverythingBehindAnInsertion) {
  const std::string older = RandomBytes(5 * kWholePart + 1000, 1);
  TwoVersions test(older, "some bytes" + older);
  EXPECT_EQ(test.builder->missing().Bytes(test.manifest), static_cast<int64_t>(older.size()) + 10);
  test.TakeMoved();
  // Only the part with the insertion is missing, and an offer has nearly all of it.
  EXPECT_EQ(test.builder->missing().Bytes(test.manifest), kPartBytes);
  EXPECT_LE(test.BytesToSend(), static_cast<int64_t>(2 * kMaxChunkBytes));
}

TEST(TakeMoved, WhatIsInItsPlaceIsNotSearched) {
  std::string older = RandomBytes(4 * kWholePart, 2);
  std::string newer = older;
  newer.replace(kWholePart + 5, 1000, RandomBytes(1000, 3));
  TwoVersions test(older, newer);
  test.TakeMoved();
  EXPECT_EQ(test.builder->missing().Bytes(test.manifest), kPartBytes);
  EXPECT_LE(test.BytesToSend(), static_cast<int64_t>(3 * kMaxChunkBytes));
}

TEST(TakeMoved, AFileWithNothingInCommonCostsNoMoreThanItself) {
  TwoVersions test(RandomBytes(3 * kWholePart, 4), RandomBytes(3 * kWholePart, 5));
  test.TakeMoved();
  EXPECT_EQ(test.BytesToSend(), 3 * kPartBytes);
}

TEST(TakeMoved, RandomEditsSendLittleMoreThanThemselves) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const std::string older = RandomBytes(4 * kWholePart + 12'345, seed);
    std::string newer = older;
    int64_t fresh = 0;
    for (uint64_t i = 0; i < 4; ++i) {
      const size_t at = (seed * 7'654'321 + i * 9'876'543) % newer.size();
      const size_t size = 1 + (seed * i * 777) % 20'000;
      if ((seed + i) % 3 == 0) {
        newer.erase(at, size);
      } else {
        newer.insert(at, RandomBytes(size, seed * 10 + i));
        fresh += static_cast<int64_t>(size);
      }
    }
    TwoVersions test(older, newer);
    test.TakeMoved();
    EXPECT_LE(test.BytesToSend(), fresh + static_cast<int64_t>(4 * 4 * kMaxChunkBytes)) << seed;
    // The taken parts, with the rest from the newer version itself, make up the file.
    const UniqueFd fd(file_ops::Open(test.new_dir.path(), O_RDONLY | O_DIRECTORY));
    ASSERT_OK(test.builder->TakeSamePaths(fd.get()));
    ASSERT_OK(test.builder->Finish());
    EXPECT_TRUE(ReadFileToString(JoinPath(test.builder->tree_path(), "f")).value() == newer);
  }
}

// Anchors are only guesses: what is not the part's content stays missing.
TEST(TakeMoved, AnchorsThatLieTakeNothing) {
  const std::string older = RandomBytes(3 * kWholePart, 6);
  TwoVersions test(older, "x" + older);
  std::vector<LostParts> files = test.WithAnchors();
  ASSERT_EQ(files.size(), 1u);
  std::swap(files[0].parts[1].anchor, files[0].parts[2].anchor);
  files.push_back({77, files[0].parts});
  ASSERT_OK(test.builder->TakeMoved(files));
  EXPECT_EQ(test.builder->missing().Bytes(test.manifest), 3 * kPartBytes + 1);
}

// A hole in the older version stays one.
TEST(TakeMoved, HolesMoveToo) {
  std::string older =
      RandomBytes(kWholePart, 7) + std::string(4 * kWholePart, '\0') + RandomBytes(kWholePart, 8);
  TwoVersions test(older, "inserted" + older);
  test.TakeMoved();
  const UniqueFd fd(file_ops::Open(test.new_dir.path(), O_RDONLY | O_DIRECTORY));
  ASSERT_OK(test.builder->TakeSamePaths(fd.get()));
  ASSERT_OK(test.builder->Finish());
  EXPECT_TRUE(ReadFileToString(JoinPath(test.builder->tree_path(), "f")).value() == test.content);
}

TEST(PartsToFind, AreOnlyThoseOfFilesWithAnOlderVersion) {
  const std::string older = RandomBytes(2 * kWholePart, 9);
  TwoVersions test(older, older + "more");
  // The last part is new, and short.
  const auto files = test.builder->PartsToFind();
  ASSERT_EQ(files.size(), 1u);
  ASSERT_EQ(files[0].parts.size(), 1u);
  EXPECT_EQ(files[0].parts[0].offset, 2 * kPartBytes);
  EXPECT_EQ(files[0].parts[0].length, 4);
  EXPECT_GE(test.builder->OlderFile(0), 0);
  EXPECT_EQ(test.builder->OlderFile(1), -1);
  TempDir to;
  EXPECT_TRUE(TreeBuilder::Begin(to.path(), test.manifest).value()->PartsToFind().empty());
}

}  // namespace
}  // namespace gpuctl
