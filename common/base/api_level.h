// The protocol level of this build: proto/README.md, rule 6.
#ifndef GPUCTL_COMMON_BASE_API_LEVEL_H_
#define GPUCTL_COMMON_BASE_API_LEVEL_H_

#include <cstdint>

namespace gpuctl {

// The level has its own .cc file, so that a test can build programs of another level.
extern const int32_t kApiLevel;

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BASE_API_LEVEL_H_
