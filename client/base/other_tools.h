// What people type who come from other tools, and what gpuctl calls it. Pure.
#ifndef GPUCTL_CLIENT_BASE_OTHER_TOOLS_H_
#define GPUCTL_CLIENT_BASE_OTHER_TOOLS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace gpuctl {

// Returns what stands for another tool's command ("sbatch", "download") or flag ("--gres"): "; it
// is gpuctl pull here"; "" for any other word.
std::string OursForOthers(absl::string_view word);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_OTHER_TOOLS_H_
