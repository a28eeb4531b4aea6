// Decompression of whole files.
#ifndef GPUCTL_COMMON_PACKING_WHOLE_FRAMES_H_
#define GPUCTL_COMMON_PACKING_WHOLE_FRAMES_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// Returns the content of `zstd`, one or more frames of zstd. INVALID_ARGUMENT when it is none, or
// is cut; RESOURCE_EXHAUSTED when more than `most_bytes` would come out.
absl::StatusOr<std::string> UnpackZstd(absl::string_view zstd, size_t most_bytes);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_PACKING_WHOLE_FRAMES_H_
