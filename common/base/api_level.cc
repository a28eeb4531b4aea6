#include "common/base/api_level.h"

namespace gpuctl {

// Level 2 added RemoveJob, level 3 JobSpec.gpus and JobSpec.alerts, level 4 JobSpec.setup,
// level 5 JobSpec.processes and JobSpec.gang.
const int32_t kApiLevel = 5;

}  // namespace gpuctl
