// The level of the protocol that this build speaks: proto/README.md, rule 6.
#ifndef GPUCTL_COMMON_BASE_API_LEVEL_H_
#define GPUCTL_COMMON_BASE_API_LEVEL_H_

#include <cstdint>

namespace gpuctl {

// Defined in a file of its own, so that a test can build programs of another level.
extern const int32_t kApiLevel;

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BASE_API_LEVEL_H_
