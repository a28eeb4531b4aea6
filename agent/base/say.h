#ifndef GPUCTL_AGENT_BASE_SAY_H_
#define GPUCTL_AGENT_BASE_SAY_H_

#include "absl/strings/string_view.h"

namespace gpuctl {

// Writes one line to stderr, which is the job's shim.stderr. Writes nothing more after 64 KiB,
// because a full or broken disk can cause messages for ever.
void Say(absl::string_view message);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_SAY_H_
