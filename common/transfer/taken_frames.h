// The paths that a push into a work directory would remove, and those of them that stay, as frames.
#ifndef GPUCTL_COMMON_TRANSFER_TAKEN_FRAMES_H_
#define GPUCTL_COMMON_TRANSFER_TAKEN_FRAMES_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/transfer/frame_channel.h"

namespace gpuctl {

// Writes `taken` as Taken frames, and flushes. When there is any path, it then reads the answer and
// calls `keep` with the index of each path that stays. INVALID_ARGUMENT for an answer that does not
// fit.
absl::Status AskAboutTaken(FrameChannel& channel, const std::vector<std::string>& taken,
                           const std::function<void(size_t index)>& keep);

// Reads Taken frames and answers them: the paths for which `stays` returns true stay. Does not
// flush.
absl::Status AnswerTaken(
    FrameChannel& channel,
    const std::function<bool(const std::string& path, bool is_directory)>& stays);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_TAKEN_FRAMES_H_
