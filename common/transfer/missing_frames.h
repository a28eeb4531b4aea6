// What is missing of a tree, as the frames that the receiving end of a push answers with.
#ifndef GPUCTL_COMMON_TRANSFER_MISSING_FRAMES_H_
#define GPUCTL_COMMON_TRANSFER_MISSING_FRAMES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/transfer/frame_channel.h"
#include "common/tree/manifest.h"
#include "common/tree/missing_content.h"

namespace gpuctl {

// As Missing frames. Flushes.
absl::Status WriteMissing(FrameChannel& channel, const MissingContent& missing,
                          const std::string& token);
// INVALID_ARGUMENT for what does not fit the manifest.
absl::StatusOr<MissingContent> ReadMissing(FrameChannel& channel, const Manifest& manifest,
                                           std::string* token);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_MISSING_FRAMES_H_
