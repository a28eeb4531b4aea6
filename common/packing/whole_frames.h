// Compression and decompression of whole files.
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

// Returns `content` compressed for somebody who has `base`: what both have in common costs nearly
// nothing. It needs half a second for a program of 5 MB.
std::string PackAgainst(absl::string_view content, absl::string_view base);

// Returns the content of what PackAgainst made with the same `base`. Errors as of UnpackZstd; with
// another base the content is another.
absl::StatusOr<std::string> UnpackAgainst(absl::string_view zstd, absl::string_view base,
                                          size_t most_bytes);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_PACKING_WHOLE_FRAMES_H_
