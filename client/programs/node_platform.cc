#include "client/programs/node_platform.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/program_version.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr char kThereIs[] = "gpuctl has programs for x86-64 and arm64 Linux";
// A word of uname that is longer is nonsense, or an attack on the terminal.
constexpr size_t kLongestWord = 40;

// Returns `word` so that it can be shown, whatever the machine printed.
std::string Shown(absl::string_view word) {
  std::string text(word.substr(0, kLongestWord));
  for (char& c : text) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) c = '?';
  }
  return text;
}

// Returns the last line of `text` that is not blank, without blanks around it.
absl::string_view AnswerLine(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  const size_t before = text.find_last_of("\r\n");
  return before == text.npos ? text : absl::StripAsciiWhitespace(text.substr(before + 1));
}

// Reads a little-endian number of `size` bytes at `at`.
uint32_t NumberAt(absl::string_view bytes, size_t at, size_t size) {
  uint32_t number = 0;
  for (size_t i = size; i-- > 0;) {
    number = number << 8 | static_cast<unsigned char>(bytes[at + i]);
  }
  return number;
}

absl::StatusOr<NodePlatform> PlatformOfElf(absl::string_view header) {
  constexpr size_t kClass = 4, kOrder = 5, kMachine = 18;
  constexpr char kClass64 = 2, kLittleEndian = 1;
  constexpr uint32_t kX86_64 = 62, kAarch64 = 183;
  if (header.size() < kMachine + 2) return absl::InvalidArgumentError("it is no program");
  const uint32_t machine = NumberAt(header, kMachine, 2);
  if (header[kClass] == kClass64 && header[kOrder] == kLittleEndian) {
    if (machine == kX86_64) return NodePlatform::kLinuxX86_64;
    if (machine == kAarch64) return NodePlatform::kLinuxAarch64;
  }
  return absl::UnimplementedError(absl::StrCat("it is a program for another processor (ELF ",
                                               header[kClass] == kClass64 ? "64" : "32",
                                               " bits, machine ", machine, "); ", kThereIs));
}

absl::StatusOr<NodePlatform> PlatformOfMachO(absl::string_view header) {
  constexpr size_t kCpu = 4;
  constexpr uint32_t kArm64 = 0x0100000c;
  if (header.size() < kCpu + 4) return absl::InvalidArgumentError("it is no program");
  if (NumberAt(header, kCpu, 4) == kArm64) return NodePlatform::kMacArm64;
  return absl::UnimplementedError("it is a program for a Mac with an Intel processor");
}

}  // namespace

const std::vector<NodePlatform>& AllPlatforms() {
  static const auto& platforms = *new std::vector<NodePlatform>{
      NodePlatform::kLinuxX86_64, NodePlatform::kLinuxAarch64, NodePlatform::kMacArm64};
  return platforms;
}

const std::vector<NodePlatform>& LinuxPlatforms() {
  static const auto& platforms =
      *new std::vector<NodePlatform>{NodePlatform::kLinuxX86_64, NodePlatform::kLinuxAarch64};
  return platforms;
}

absl::string_view PlatformName(NodePlatform platform) {
  switch (platform) {
    case NodePlatform::kLinuxX86_64:
      return "linux-x86_64";
    case NodePlatform::kLinuxAarch64:
      return "linux-aarch64";
    case NodePlatform::kMacArm64:
      return "macos-arm64";
  }
  return "";
}

std::string PlatformNames(const std::vector<NodePlatform>& platforms) {
  if (platforms.empty()) return "none";
  return absl::StrJoin(platforms, ", ", [](std::string* text, NodePlatform platform) {
    absl::StrAppend(text, PlatformName(platform));
  });
}

absl::string_view PlatformTitle(NodePlatform platform) {
  switch (platform) {
    case NodePlatform::kLinuxX86_64:
      return "Linux x86_64";
    case NodePlatform::kLinuxAarch64:
      return "Linux aarch64";
    case NodePlatform::kMacArm64:
      return "Darwin arm64";
  }
  return "";
}

absl::StatusOr<NodePlatform> PlatformOfName(absl::string_view name) {
  for (const NodePlatform platform : AllPlatforms()) {
    if (PlatformName(platform) == name) return platform;
  }
  return absl::NotFoundError(
      absl::StrCat("there is no platform ", name, "; there are ", PlatformNames(AllPlatforms())));
}

absl::StatusOr<NodePlatform> PlatformOfUname(absl::string_view answer) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(AnswerLine(answer), absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (words.size() < 2) {
    return absl::InvalidArgumentError(
        words.empty() ? "it does not say its system and processor (uname -sm)"
                      : absl::StrCat("it does not say its system and processor, only ",
                                     Shown(words[0]), " (uname -sm)"));
  }
  const absl::string_view system = words[words.size() - 2];
  const std::string machine = absl::AsciiStrToLower(words.back());
  const bool arm64 = machine == "aarch64" || machine == "arm64";
  if (system == "Linux") {
    if (machine == "x86_64" || machine == "amd64") return NodePlatform::kLinuxX86_64;
    if (arm64) return NodePlatform::kLinuxAarch64;
    return absl::UnimplementedError(
        absl::StrCat("its processor is ", Shown(words.back()), "; ", kThereIs));
  }
  if (system == "Darwin") {
    if (arm64) return NodePlatform::kMacArm64;
    return absl::UnimplementedError(
        absl::StrCat("it is a Mac, and its processor is ", Shown(words.back()), "; ", kThereIs));
  }
  return absl::UnimplementedError(absl::StrCat("its system is ", Shown(system), " (processor ",
                                               Shown(words.back()), "); ", kThereIs));
}

absl::StatusOr<NodePlatform> PlatformOfProgram(absl::string_view header) {
  if (absl::StartsWith(header, "\177ELF")) return PlatformOfElf(header);
  if (absl::StartsWith(header, "\xcf\xfa\xed\xfe")) return PlatformOfMachO(header);
  return absl::InvalidArgumentError("it is no program");
}

absl::StatusOr<NodePlatform> PlatformOfProgramFile(const std::string& path) {
  const UniqueFd fd(file_ops::Open(path, O_RDONLY));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("read ", path));
  char header[kProgramHeaderBytes];
  const ssize_t got = read(fd.get(), header, sizeof(header));
  if (got < 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
  absl::StatusOr<NodePlatform> platform =
      PlatformOfProgram(absl::string_view(header, static_cast<size_t>(got)));
  if (!platform.ok()) return Annotate(platform.status(), path);
  return platform;
}

NodePlatform OwnPlatform() {
  return PlatformOfName(OwnPlatformName()).value_or(NodePlatform::kLinuxX86_64);
}

}  // namespace gpuctl
