#include "common/base/api_level.h"

namespace gpuctl {

// Level 2 added RemoveJob, level 3 JobSpec.gpus and JobSpec.alerts.
const int32_t kApiLevel = 3;

}  // namespace gpuctl
