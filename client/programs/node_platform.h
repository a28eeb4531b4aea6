// The kinds of machine that gpuctl has programs for: operating system and processor.
#ifndef GPUCTL_CLIENT_PROGRAMS_NODE_PLATFORM_H_
#define GPUCTL_CLIENT_PROGRAMS_NODE_PLATFORM_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

enum class NodePlatform { kLinuxX86_64, kLinuxAarch64, kMacArm64 };

// Returns every platform, in the order in which lists show them.
const std::vector<NodePlatform>& AllPlatforms();

// Returns the platforms of machines on offer: Linux, with either processor.
const std::vector<NodePlatform>& LinuxPlatforms();

// Returns "linux-x86_64", "linux-aarch64" or "macos-arm64": the name of a folder of programs.
absl::string_view PlatformName(NodePlatform platform);

// Returns "linux-x86_64, linux-aarch64"; "none" for no platform.
std::string PlatformNames(const std::vector<NodePlatform>& platforms);

// Returns "Linux x86_64", as `uname -sm` says it.
absl::string_view PlatformTitle(NodePlatform platform);

// Returns the platform with that name. NOT_FOUND names those that there are.
absl::StatusOr<NodePlatform> PlatformOfName(absl::string_view name);

// Returns the platform of a machine from what `uname -sm` printed there; whatever was printed
// before the last line does not count. UNIMPLEMENTED, which names what was met and what there is,
// when gpuctl has no programs for such a machine; INVALID_ARGUMENT when the answer is empty.
absl::StatusOr<NodePlatform> PlatformOfUname(absl::string_view answer);

// The number of bytes at a program's beginning that PlatformOfProgram looks at.
constexpr size_t kProgramHeaderBytes = 64;

// Returns the platform that a program is for, from its first bytes (ELF or Mach-O). UNIMPLEMENTED
// names the processor of a program for any other platform; INVALID_ARGUMENT: it is no program.
absl::StatusOr<NodePlatform> PlatformOfProgram(absl::string_view header);

// Reads the header of the program at `path`. Errors are those of PlatformOfProgram, with the path,
// and those of reading.
absl::StatusOr<NodePlatform> PlatformOfProgramFile(const std::string& path);

// Returns the platform of this program.
NodePlatform OwnPlatform();

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_PROGRAMS_NODE_PLATFORM_H_
