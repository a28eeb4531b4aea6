#include "common/base/api_level.h"

namespace gpuctl {

// 2: RemoveJob.
const int32_t kApiLevel = 2;

}  // namespace gpuctl
