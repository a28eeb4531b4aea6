// What the programs for nodes print for --version.
#ifndef GPUCTL_COMMON_BASE_PROGRAM_VERSION_H_
#define GPUCTL_COMMON_BASE_PROGRAM_VERSION_H_

#include <string>

#include "absl/strings/string_view.h"

namespace gpuctl {

// Returns the platform that this program was compiled for: "linux-x86_64", "linux-aarch64" or
// "macos-arm64"; "unknown" for any other.
absl::string_view OwnPlatformName();

// Returns "<program> <version> <platform>, api level <level>".
std::string ProgramVersion(absl::string_view program);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BASE_PROGRAM_VERSION_H_
