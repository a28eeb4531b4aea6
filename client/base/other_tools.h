// What people type who come from other tools, and what gpuctl calls it. Pure.
#ifndef GPUCTL_CLIENT_BASE_OTHER_TOOLS_H_
#define GPUCTL_CLIENT_BASE_OTHER_TOOLS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace gpuctl {

// Returns what stands for another tool's command ("sbatch", "download") or flag ("--gres"): "; it
// is gpuctl pull here"; "" for any other word.
std::string OursForOthers(absl::string_view word);

// Returns a duration of Slurm's ("60" minutes, "MM:SS", "HH:MM:SS", "D-HH", "D-HH:MM",
// "D-HH:MM:SS") as ParseDuration takes it: "1h30m"; "" for any other text.
std::string DurationOfSlurm(absl::string_view text);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_OTHER_TOOLS_H_
