#ifndef GPUCTL_AGENT_SHIM_SAY_H_
#define GPUCTL_AGENT_SHIM_SAY_H_

#include "absl/strings/string_view.h"

namespace gpuctl {

// One line to stderr, which is the job's shim.stderr; silent after 64 KiB, because a disk that is
// full or broken can give reasons for ever.
void Say(absl::string_view message);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SHIM_SAY_H_
