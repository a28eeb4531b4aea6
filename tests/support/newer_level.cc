// Replaces common/base/api_level.cc, as in a future build.
#include "common/base/api_level.h"

namespace gpuctl {

const int32_t kApiLevel = 1000;

}  // namespace gpuctl
