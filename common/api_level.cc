#include "common/api_level.h"

namespace gpuctl {

const int32_t kApiLevel = 1;

}  // namespace gpuctl
