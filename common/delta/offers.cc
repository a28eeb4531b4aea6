#include "common/delta/offers.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <unordered_map>

#include "common/delta/gear.h"
#include "common/files/sha256.h"

namespace gpuctl {
namespace {

using gpuctl::v1::Offer;

// The hashes only find content: what was put together has the hash of its part.
constexpr size_t kChunkHashBytes = 16;
constexpr size_t kBufferBytes = 1 << 20;
constexpr int64_t kMaxOfferOffset = int64_t{1} << 56;

}  // namespace

void DescribeChunks(int fd, const Range& range, Offer& offer) {
  offer.set_offset(range.begin);
  std::string buffer(kBufferBytes, '\0');
  size_t held = 0;
  int64_t next = range.begin;  // to be read
  bool at_end = false;
  while (offer.sizes_size() < kMaxOfferedChunks) {
    while (!at_end && held < kMaxChunkBytes) {
      const auto wanted = static_cast<size_t>(
          std::min<int64_t>(range.end - next, static_cast<int64_t>(buffer.size() - held)));
      const ssize_t got = wanted > 0 ? pread(fd, buffer.data() + held, wanted, next) : 0;
      if (got < 0 && errno == EINTR) continue;
      at_end = got <= 0;
      held += static_cast<size_t>(std::max<ssize_t>(0, got));
      next += std::max<ssize_t>(0, got);
    }
    if (held == 0) return;
    absl::string_view rest(buffer.data(), held);
    while ((rest.size() >= kMaxChunkBytes || (at_end && !rest.empty())) &&
           offer.sizes_size() < kMaxOfferedChunks) {
      const absl::string_view chunk = rest.substr(0, FirstChunk(rest));
      offer.add_sizes(static_cast<uint32_t>(chunk.size()));
      offer.mutable_hashes()->append(Sha256Of(chunk), 0, kChunkHashBytes);
      rest.remove_prefix(chunk.size());
    }
    held = rest.size();
    std::copy(rest.begin(), rest.end(), buffer.begin());
  }
}

absl::Status CheckOffer(const Offer& offer) {
  const auto bad = [] {
    return absl::InvalidArgumentError("transfer: the peer offered content that no file has");
  };
  if (offer.sizes_size() > kMaxOfferedChunks || offer.offset() < 0 ||
      offer.offset() > kMaxOfferOffset ||
      offer.hashes().size() != static_cast<size_t>(offer.sizes_size()) * kChunkHashBytes) {
    return bad();
  }
  for (const uint32_t size : offer.sizes()) {
    if (size == 0 || size > kMaxChunkBytes) return bad();
  }
  return absl::OkStatus();
}

std::vector<Segment> MatchOffers(absl::string_view content,
                                 const std::vector<const Offer*>& offers) {
  struct Offered {
    int64_t from;
    uint32_t size;
  };
  std::unordered_map<std::string, Offered> by_hash;
  for (const Offer* offer : offers) {
    int64_t from = offer->offset();
    for (int i = 0; i < offer->sizes_size(); ++i) {
      by_hash.emplace(
          offer->hashes().substr(static_cast<size_t>(i) * kChunkHashBytes, kChunkHashBytes),
          Offered{from, offer->sizes(i)});
      from += int64_t{offer->sizes(i)};
    }
  }
  std::vector<Segment> segments;
  for (int64_t at = 0; at < static_cast<int64_t>(content.size());) {
    const absl::string_view rest = content.substr(static_cast<size_t>(at));
    const absl::string_view chunk = rest.substr(0, FirstChunk(rest));
    const auto length = static_cast<int64_t>(chunk.size());
    const auto hit = by_hash.find(Sha256Of(chunk).substr(0, kChunkHashBytes));
    const bool there = hit != by_hash.end() && int64_t{hit->second.size} == length;
    const int64_t from = there ? hit->second.from : -1;
    Segment* last = segments.empty() ? nullptr : &segments.back();
    const bool goes_on =
        last != nullptr &&
        (there ? last->from >= 0 && last->from + last->length == from : last->from < 0);
    if (goes_on) {
      last->length += length;
    } else {
      segments.push_back({at, length, from});
    }
    at += length;
  }
  return segments;
}

}  // namespace gpuctl
