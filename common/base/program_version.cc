#include "common/base/program_version.h"

#include "absl/strings/str_cat.h"
#include "common/base/api_level.h"

namespace gpuctl {

absl::string_view OwnPlatformName() {
#if defined(__linux__) && defined(__x86_64__)
  return "linux-x86_64";
#elif defined(__linux__) && defined(__aarch64__)
  return "linux-aarch64";
#elif defined(__APPLE__) && defined(__aarch64__)
  return "macos-arm64";
#else
  return "unknown";
#endif
}

std::string ProgramVersion(absl::string_view program) {
  return absl::StrCat(program, " ", GPUCTL_VERSION, " ", OwnPlatformName(), ", api level ",
                      kApiLevel);
}

}  // namespace gpuctl
