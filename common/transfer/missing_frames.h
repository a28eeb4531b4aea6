// The missing content of a tree as frames: the answer of the receiving end of a push.
#ifndef GPUCTL_COMMON_TRANSFER_MISSING_FRAMES_H_
#define GPUCTL_COMMON_TRANSFER_MISSING_FRAMES_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/transfer/frame_channel.h"
#include "common/tree/manifest.h"
#include "common/tree/missing_content.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {

// Writes `missing`, `token` and `offers` as Missing frames, and flushes.
absl::Status WriteMissing(FrameChannel& channel, const MissingContent& missing,
                          const std::string& token,
                          const std::vector<gpuctl::v1::Offer>& offers = {});
// Gets what comes beside the missing content.
struct MissingExtras {
  // Answers the receiver's question, which comes first and at most once.
  std::function<absl::Status(const gpuctl::v1::FindParts&)> find;
  std::vector<gpuctl::v1::Offer> offers;  // gets the offers, which were checked
  int64_t chunks = 0;                     // gets their number
};
// Reads Missing frames. INVALID_ARGUMENT when they do not fit the manifest, and for questions and
// offers without `extras`.
absl::StatusOr<MissingContent> ReadMissing(FrameChannel& channel, const Manifest& manifest,
                                           std::string* token, MissingExtras* extras = nullptr);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_MISSING_FRAMES_H_
