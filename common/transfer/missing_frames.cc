#include "common/transfer/missing_frames.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/delta/gear.h"
#include "common/delta/offers.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {
namespace {

using gpuctl::v1::Missing;
using gpuctl::v1::TransferFrame;

// The largest number of integers in one frame; each takes at most five bytes.
constexpr int kMaxNumbers = 100'000;
// The size from which a frame of offers is sent; one offer takes less than half of a frame.
constexpr size_t kEnoughOfferBytes = 512 << 10;
// The largest number of offered chunks in a push. The receiver offers at most a gibibyte.
constexpr int64_t kMaxChunks = (int64_t{1} << 30) / kMinChunkBytes + kMaxOfferedChunks;

absl::Status WriteOffers(FrameChannel& channel, const std::vector<gpuctl::v1::Offer>& offers) {
  TransferFrame frame;
  size_t bytes = 0;
  for (size_t i = 0; i < offers.size(); ++i) {
    *frame.mutable_missing()->add_offers() = offers[i];
    bytes += offers[i].ByteSizeLong();
    if (bytes < kEnoughOfferBytes && i + 1 < offers.size()) continue;
    RETURN_IF_ERROR(channel.Write(frame));
    frame.Clear();
    bytes = 0;
  }
  return absl::OkStatus();
}

absl::Status TakeOffers(const Missing& part, const Manifest& manifest, MissingExtras* extras) {
  const auto bad = [] {
    return absl::InvalidArgumentError("read what is missing: an offer for what is no part");
  };
  if (part.offers().empty()) return absl::OkStatus();
  if (extras == nullptr) return bad();
  for (const gpuctl::v1::Offer& offer : part.offers()) {
    if (int64_t{offer.index()} >= manifest.size()) return bad();
    const int64_t size = manifest[offer.index()].size();
    if (size <= kPartBytes || int64_t{offer.part()} >= PartCount(size)) return bad();
    RETURN_IF_ERROR(CheckOffer(offer));
    // An offer without chunks counts, too.
    extras->chunks += 1 + int64_t{offer.sizes_size()};
    if (extras->chunks > kMaxChunks) return bad();
    extras->offers.push_back(offer);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteMissing(FrameChannel& channel, const MissingContent& missing,
                          const std::string& token, const std::vector<gpuctl::v1::Offer>& offers) {
  RETURN_IF_ERROR(WriteOffers(channel, offers));
  TransferFrame frame;
  frame.mutable_missing()->set_token(token);
  absl::Status status;
  int numbers = 0;
  const auto count = [&](int more) {
    numbers += more;
    if (numbers < kMaxNumbers || !status.ok()) return;
    status = channel.Write(frame);
    frame.mutable_missing()->Clear();
    numbers = 0;
  };
  Missing::Parts* of_file = nullptr;  // the next run of parts goes into it
  const auto begin_file = [&](uint32_t index) {
    of_file = frame.mutable_missing()->add_partial();
    of_file->set_index(index);
  };
  missing.ForEachRun(
      [&](uint32_t first, uint32_t number) {
        frame.mutable_missing()->add_whole(first);
        frame.mutable_missing()->add_whole(number);
        count(2);
      },
      [&](uint32_t index, uint32_t first, uint32_t number) {
        if (of_file == nullptr || of_file->index() != index) {
          if (of_file != nullptr) count(2);
          begin_file(index);
        }
        of_file->add_parts(first);
        of_file->add_parts(number);
        count(2);
        if (numbers == 0) begin_file(index);
      });
  if (of_file != nullptr) count(2);
  RETURN_IF_ERROR(status);
  frame.mutable_missing()->set_last(true);
  RETURN_IF_ERROR(channel.Write(frame));
  return channel.Flush();
}

absl::StatusOr<MissingContent> ReadMissing(FrameChannel& channel, const Manifest& manifest,
                                           std::string* token, MissingExtras* extras) {
  const auto bad = [](absl::string_view cause) {
    return absl::InvalidArgumentError(absl::StrCat("read what is missing: ", cause));
  };
  MissingContent missing(manifest.size());
  // Runs must come in order, so that a peer cannot name the same entries for ever.
  int64_t next_whole = 0;
  int64_t next_partial = 0;
  int64_t next_part = 0;  // of the file before next_partial
  bool may_ask = extras != nullptr && extras->find;
  while (true) {
    ASSIGN_OR_RETURN(const TransferFrame frame, channel.ReadOrError());
    if (frame.has_find_parts() && std::exchange(may_ask, false)) {
      RETURN_IF_ERROR(extras->find(frame.find_parts()));
      continue;
    }
    if (!frame.has_missing()) return bad("another frame came in its place");
    may_ask = false;
    const Missing& part = frame.missing();
    RETURN_IF_ERROR(TakeOffers(part, manifest, extras));
    if (token != nullptr && !part.token().empty()) *token = part.token();
    if (part.whole_size() % 2 != 0) return bad("half a run");
    for (int i = 0; i < part.whole_size(); i += 2) {
      const int64_t end = int64_t{part.whole(i)} + part.whole(i + 1);
      if (end > manifest.size()) return bad("an index beyond the manifest");
      if (part.whole(i) < next_whole) return bad("runs out of order");
      next_whole = end;
      for (int64_t index = part.whole(i); index < end; ++index) {
        if (manifest[index].size() > 0) missing.AddFile(index);
      }
    }
    for (const Missing::Parts& parts : part.partial()) {
      if (int64_t{parts.index()} >= manifest.size()) return bad("an index beyond the manifest");
      if (parts.parts_size() % 2 != 0) return bad("half a run");
      if (int64_t{parts.index()} + 1 < next_partial) return bad("files out of order");
      // A frame may end within a file, and the next frame goes on with that file.
      if (int64_t{parts.index()} + 1 > next_partial) next_part = 0;
      next_partial = int64_t{parts.index()} + 1;
      const int64_t count = PartCount(manifest[parts.index()].size());
      for (int i = 0; i < parts.parts_size(); i += 2) {
        const int64_t end = int64_t{parts.parts(i)} + parts.parts(i + 1);
        if (end > count) return bad("a part beyond the file");
        if (parts.parts(i) < next_part) return bad("runs out of order");
        next_part = end;
        for (int64_t p = parts.parts(i); p < end; ++p) missing.AddPart(parts.index(), p, count);
      }
    }
    if (part.last()) return missing;
  }
}

}  // namespace gpuctl
