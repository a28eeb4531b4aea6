#include "common/base/api_level.h"

namespace gpuctl {

// Level 2 added RemoveJob, level 3 JobSpec.gpus and JobSpec.alerts, level 4 JobSpec.setup.
const int32_t kApiLevel = 4;

}  // namespace gpuctl
