// What a build of tomorrow has in place of common/base/api_level.cc.
#include "common/base/api_level.h"

namespace gpuctl {

const int32_t kApiLevel = 1000;

}  // namespace gpuctl
