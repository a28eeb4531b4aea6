#include "agent/base/nvidia_smi.h"

#include <stdlib.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gpuctl {

std::string FindNvidiaSmi() {
  const char* chosen = getenv("GPUCTL_NVIDIA_SMI");
  if (chosen != nullptr) return chosen;
  const char* path = getenv("PATH");
  for (const absl::string_view dir : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    const std::string candidate = absl::StrCat(dir, "/nvidia-smi");
    if (absl::StartsWith(dir, "/") && access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  // An ssh session's PATH may lack these places.
  for (const char* usual :
       {"/usr/bin/nvidia-smi", "/usr/local/bin/nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi",
        "/opt/bin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi"}) {
    if (access(usual, X_OK) == 0) return usual;
  }
  return "";
}

}  // namespace gpuctl
