#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/unique_fd.h"
#include "common/delta/gear.h"
#include "common/delta/moved_parts.h"
#include "common/delta/offers.h"
#include "tests/support/matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/transfer_peers.h"

namespace gpuctl {
namespace {

using gpuctl::v1::Offer;

constexpr int64_t kLengthOfPart = int64_t{1} << 20;

// A file on disk.
struct Stored {
  explicit Stored(absl::string_view content) {
    fd.reset(open(dir.Write("f", content).c_str(), O_RDONLY | O_CLOEXEC));
  }
  TempDir dir;
  UniqueFd fd;
};

std::vector<std::string> ChunksOf(absl::string_view content) {
  std::vector<std::string> chunks;
  while (!content.empty()) {
    const size_t size = FirstChunk(content.substr(0, kMaxChunkBytes));
    chunks.emplace_back(content.substr(0, size));
    content.remove_prefix(size);
  }
  return chunks;
}

std::vector<LostPart> PartsOf(absl::string_view content) {
  std::vector<LostPart> parts;
  for (int64_t at = 0; at < static_cast<int64_t>(content.size()); at += kLengthOfPart) {
    const absl::string_view part =
        content.substr(static_cast<size_t>(at), static_cast<size_t>(kLengthOfPart));
    parts.push_back({at / kLengthOfPart, at, static_cast<int64_t>(part.size()),
                     FindAnchor(part.substr(0, kAnchorRangeBytes)), -1});
  }
  return parts;
}

std::vector<int64_t> Found(const std::vector<LostPart>& parts) {
  std::vector<int64_t> found;
  for (const LostPart& part : parts) found.push_back(part.found);
  return found;
}

Offer OfferOf(absl::string_view content) {
  const Stored stored(content);
  Offer offer;
  DescribeChunks(stored.fd.get(), {0, static_cast<int64_t>(content.size())}, offer);
  return offer;
}

TEST(Gear, DependsOnTheLastBytesOnly) {
  const std::string bytes = RandomBytes(10'000, 1);
  int places = 0;
  ForEachPlace(bytes, 0, [&](size_t end, uint64_t hash) {
    EXPECT_EQ(hash, GearOf(absl::string_view(bytes).substr(0, end)));
    EXPECT_EQ(hash, GearOf(absl::string_view(bytes).substr(end - kGearBytes, kGearBytes)));
    ++places;
    return true;
  });
  EXPECT_EQ(places, static_cast<int>(bytes.size() - kGearBytes + 1));
}

// Both ends of a transfer may be of different builds.
TEST(Gear, IsTheSameInEveryBuild) {
  const std::string bytes = RandomBytes(1 << 20, 1);
  EXPECT_EQ(GearOf(bytes), 9814165254767186038u);
  EXPECT_EQ(FindAnchor(bytes).end, 174861u);
  EXPECT_EQ(FirstChunk(bytes), 16930u);
}

TEST(Gear, AnAnchorMovesWithItsContent) {
  const std::string bytes = RandomBytes(kAnchorRangeBytes, 2);
  const Anchor anchor = FindAnchor(bytes);
  ASSERT_GE(anchor.end, kGearBytes);
  EXPECT_EQ(anchor.hash, GearOf(absl::string_view(bytes).substr(0, anchor.end)));
  for (const size_t removed : {1, 1000}) {
    const Anchor moved = FindAnchor(absl::string_view(bytes).substr(removed));
    EXPECT_EQ(moved.hash, anchor.hash);
    EXPECT_EQ(moved.end + removed, anchor.end);
  }
}

TEST(Gear, ContentThatRepeatsItselfHasNoAnchor) {
  EXPECT_EQ(FindAnchor("").end, 0u);
  EXPECT_EQ(FindAnchor(RandomBytes(kGearBytes - 1, 1)).end, 0u);
  EXPECT_EQ(FindAnchor(std::string(kAnchorRangeBytes, '\0')).end, 0u);
  const std::string once = RandomBytes(1000, 1);
  EXPECT_EQ(FindAnchor(once + once + once).end, 0u);
  EXPECT_GT(FindAnchor(once).end, 0u);
}

TEST(FirstChunk, CutsAroundAnEditStayTheSame) {
  const std::string before = RandomBytes(4 << 20, 3);
  const std::vector<std::string> old = ChunksOf(before);
  const std::set<std::string> known(old.begin(), old.end());
  EXPECT_GT(old.size(), (4u << 20) / (32 << 10));
  for (const std::string& chunk : old) {
    EXPECT_LE(chunk.size(), kMaxChunkBytes);
    EXPECT_TRUE(&chunk == &old.back() || chunk.size() > kMinChunkBytes);
  }
  for (const size_t at : {size_t{0}, before.size() / 2, before.size()}) {
    std::string edited = before;
    edited.insert(at, "an insertion of some bytes");
    size_t changed = 0;
    std::string again;
    for (const std::string& chunk : ChunksOf(edited)) {
      changed += known.count(chunk) == 0 ? chunk.size() : 0;
      again += chunk;
    }
    EXPECT_TRUE(again == edited);
    EXPECT_LE(changed, 3 * kMaxChunkBytes) << at;
  }
}

TEST(FindMovedParts, FindsPartsThatAnInsertionOrARemovalMoved) {
  const std::string before = RandomBytes(8 << 20, 4);
  const Stored older(before);
  const auto size = static_cast<int64_t>(before.size());
  auto parts = PartsOf(RandomBytes(1000, 5) + before);
  FindMovedParts(older.fd.get(), size, {}, parts);
  EXPECT_EQ(Found(parts), (std::vector<int64_t>{-1, 1047576, 2096152, 3144728, 4193304, 5241880,
                                                6290456, 7339032, 8387608}));
  parts = PartsOf(before.substr(3'000'000));
  FindMovedParts(older.fd.get(), size, {}, parts);
  EXPECT_EQ(Found(parts),
            (std::vector<int64_t>{3000000, 4048576, 5097152, 6145728, 7194304, 8242880}));
  // Two blocks have changed places.
  parts = PartsOf(before.substr(4 << 20) + before.substr(0, 4 << 20));
  FindMovedParts(older.fd.get(), size, {}, parts);
  EXPECT_EQ(Found(parts), (std::vector<int64_t>{4194304, 5242880, 6291456, 7340032, 0, 1048576,
                                                2097152, 3145728}));
}

TEST(FindMovedParts, DoesNotSearchWhatIsExplained) {
  const std::string before = RandomBytes(4 << 20, 6);
  const Stored older(before);
  auto parts = PartsOf(before.substr(1000));
  parts.resize(1);
  FindMovedParts(older.fd.get(), 4 << 20, {{2 << 20, 4 << 20}, {0, 2 << 20}}, parts);
  EXPECT_EQ(Found(parts), std::vector<int64_t>{-1});
  FindMovedParts(older.fd.get(), 4 << 20, {{2 << 20, 4 << 20}}, parts);
  EXPECT_EQ(Found(parts), std::vector<int64_t>{1000});
}

// Anchors come from a peer.
TEST(FindMovedParts, SurvivesAnchorsThatLie) {
  const std::string before = RandomBytes(3 << 20, 7);
  const Stored older(before);
  const Anchor real = FindAnchor(absl::string_view(before).substr(0, kAnchorRangeBytes));
  std::vector<LostPart> parts;
  for (int64_t i = 0; i < 40; ++i) {
    // Equal anchors, places that no part has, and hashes that are everywhere or nowhere.
    const Anchor anchors[] = {
        real, {64, real.hash}, {65536, real.hash}, {64, 0}, {70, ~uint64_t{0}}};
    parts.push_back({i, i << 20, 1 << 20, anchors[i % 5], -1});
  }
  FindMovedParts(older.fd.get(), 3 << 20, {}, parts);
  for (const LostPart& part : parts) {
    EXPECT_LE(part.found, 2 << 20);
    EXPECT_GE(part.found, -1);
  }
  // The file became shorter.
  FindMovedParts(older.fd.get(), int64_t{1} << 30, {}, parts);
}

// Applies random edits, and returns the bytes that are new.
size_t Edit(std::string& content, uint64_t seed, int edits) {
  size_t fresh = 0;
  for (int i = 0; i < edits; ++i) {
    const std::string random = RandomBytes(16, seed * 100 + static_cast<uint64_t>(i));
    const size_t at = *reinterpret_cast<const uint32_t*>(random.data()) % (content.size() + 1);
    const size_t size = *reinterpret_cast<const uint32_t*>(random.data() + 4) % 5000;
    const std::string added = RandomBytes(size, seed + static_cast<uint64_t>(i));
    switch (random[8] & 3) {
      case 0:
        content.erase(at, size);
        continue;
      case 1:
        content.replace(at, std::min(size, content.size() - at), added);
        break;
      default:
        content.insert(at, added);
    }
    fresh += size;
  }
  return fresh;
}

TEST(Offers, WhatIsSentAndWhatIsThereMakeUpTheContent) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    std::string before = RandomBytes(2 << 20, seed);
    if (seed % 3 == 0) before.replace(100'000, 700'000, std::string(700'000, '\0'));
    std::string after = before;
    const int edits = static_cast<int>(seed % 8);
    const size_t fresh = Edit(after, seed, edits);
    Offer offer = OfferOf(before);
    EXPECT_OK(CheckOffer(offer));
    std::string again;
    size_t sent = 0;
    for (const Segment& segment : MatchOffers(after, {&offer})) {
      EXPECT_EQ(segment.offset, static_cast<int64_t>(again.size()));
      const absl::string_view from = segment.from < 0 ? after : before;
      const int64_t at = segment.from < 0 ? segment.offset : segment.from;
      absl::StrAppend(&again,
                      from.substr(static_cast<size_t>(at), static_cast<size_t>(segment.length)));
      sent += segment.from < 0 ? static_cast<size_t>(segment.length) : 0;
    }
    ASSERT_TRUE(again == after) << seed;
    EXPECT_LE(sent, fresh + static_cast<size_t>(edits) * 3 * kMaxChunkBytes) << seed;
  }
}

TEST(Offers, EndWhereTheFileEnds) {
  const Stored stored(RandomBytes(100'000, 1));
  Offer offer;
  DescribeChunks(stored.fd.get(), {90'000, 900'000}, offer);
  int64_t bytes = 0;
  for (const uint32_t size : offer.sizes()) bytes += int64_t{size};
  EXPECT_EQ(bytes, 10'000);
  EXPECT_EQ(offer.offset(), 90'000);
  Offer nothing;
  DescribeChunks(stored.fd.get(), {200'000, 900'000}, nothing);
  EXPECT_EQ(nothing.sizes_size(), 0);
}

TEST(Offers, ThoseOfALyingPeerAreRefused) {
  const Offer good = OfferOf(RandomBytes(1 << 20, 1));
  EXPECT_OK(CheckOffer(good));
  EXPECT_OK(CheckOffer(Offer()));
  const auto refused = [&](const std::function<void(Offer&)>& spoil) {
    Offer offer = good;
    spoil(offer);
    return CheckOffer(offer).code() == kInvalid;
  };
  EXPECT_TRUE(refused([](Offer& o) { o.add_sizes(5000); }));
  EXPECT_TRUE(refused([](Offer& o) { o.mutable_hashes()->pop_back(); }));
  EXPECT_TRUE(refused([](Offer& o) { o.set_sizes(0, 0); }));
  EXPECT_TRUE(refused([](Offer& o) { o.set_sizes(0, kMaxChunkBytes + 1); }));
  EXPECT_TRUE(refused([](Offer& o) { o.set_offset(-1); }));
  EXPECT_TRUE(refused([](Offer& o) { o.set_offset(std::numeric_limits<int64_t>::max()); }));
  EXPECT_TRUE(refused([](Offer& o) {
    for (int i = 0; i <= kMaxOfferedChunks; ++i) o.add_sizes(1);
    o.mutable_hashes()->resize(static_cast<size_t>(o.sizes_size()) * 16);
  }));
}

// Sizes of an offer that are not those of the content refer to nothing.
TEST(Offers, AChunkWithAnotherSizeIsNotUsed) {
  const std::string content = RandomBytes(1 << 20, 1);
  Offer offer = OfferOf(content);
  for (int i = 0; i < offer.sizes_size(); ++i) offer.set_sizes(i, 77);
  const auto segments = MatchOffers(content, {&offer});
  ASSERT_EQ(segments.size(), 1u);
  EXPECT_EQ(segments[0].from, -1);
  EXPECT_EQ(segments[0].length, 1 << 20);
}

}  // namespace
}  // namespace gpuctl
