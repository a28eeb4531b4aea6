// Offers of older content: the receiving end of a transfer names the chunks of what it has near a
// missing part, and the sending end sends only what is not among them.
#ifndef GPUCTL_COMMON_DELTA_OFFERS_H_
#define GPUCTL_COMMON_DELTA_OFFERS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/delta/moved_parts.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {

// The largest number of chunks that one offer may name: those of 64 MiB in smallest chunks.
constexpr int kMaxOfferedChunks = 16 << 10;

// Describes the chunks of `range` of the file in `offer`. Ends early where the file ends.
void DescribeChunks(int fd, const Range& range, gpuctl::v1::Offer& offer);

// INVALID_ARGUMENT unless the offer of a peer is one: sizes and hashes of the same number, no chunk
// too large, no offset that no file has.
absl::Status CheckOffer(const gpuctl::v1::Offer& offer);

// A run of bytes of a piece: bytes to send, or bytes that the other end has.
struct Segment {
  int64_t offset = 0;  // from the piece's beginning
  int64_t length = 0;
  int64_t from = -1;  // offset in the other end's older file; -1: to be sent
};

// Divides `content` into what the offers, which were checked, have and what they lack.
std::vector<Segment> MatchOffers(absl::string_view content,
                                 const std::vector<const gpuctl::v1::Offer*>& offers);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_DELTA_OFFERS_H_
