// The missing content of a tree as frames: the answer of the receiving end of a push.
#ifndef GPUCTL_COMMON_TRANSFER_MISSING_FRAMES_H_
#define GPUCTL_COMMON_TRANSFER_MISSING_FRAMES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/transfer/frame_channel.h"
#include "common/tree/manifest.h"
#include "common/tree/missing_content.h"

namespace gpuctl {

// Writes `missing` and `token` as Missing frames, and flushes.
absl::Status WriteMissing(FrameChannel& channel, const MissingContent& missing,
                          const std::string& token);
// Reads Missing frames. INVALID_ARGUMENT when they do not fit the manifest.
absl::StatusOr<MissingContent> ReadMissing(FrameChannel& channel, const Manifest& manifest,
                                           std::string* token);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_MISSING_FRAMES_H_
