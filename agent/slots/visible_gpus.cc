#include "agent/slots/visible_gpus.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/base/environment.h"

namespace gpuctl {
namespace {

constexpr char kVariable[] = "CUDA_VISIBLE_DEVICES";

std::string NameOf(const gpuctl::v1::Gpu& gpu) {
  return gpu.uuid().empty() ? absl::StrCat(gpu.index()) : gpu.uuid();
}

// Returns the name of the GPU that an entry means; "" when there is none.
std::string FindGpu(const std::vector<gpuctl::v1::Gpu>& gpus, absl::string_view entry) {
  if (absl::StartsWith(entry, "MIG-")) return std::string(entry);
  int index = -1;
  const bool is_index = absl::SimpleAtoi(entry, &index);
  for (const gpuctl::v1::Gpu& gpu : gpus) {
    // CUDA takes the beginning of a UUID, too.
    if (is_index ? gpu.index() == index : !entry.empty() && absl::StartsWith(gpu.uuid(), entry)) {
      return NameOf(gpu);
    }
  }
  return "";
}

}  // namespace

std::vector<std::string> VisibleGpus(const std::vector<gpuctl::v1::Gpu>& gpus,
                                     const std::optional<std::string>& visible) {
  std::vector<std::string> names;
  if (!visible.has_value()) {
    for (const gpuctl::v1::Gpu& gpu : gpus) names.push_back(NameOf(gpu));
    return names;
  }
  for (const absl::string_view entry : absl::StrSplit(*visible, ',')) {
    const std::string name = FindGpu(gpus, absl::StripAsciiWhitespace(entry));
    if (name.empty()) break;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

std::optional<std::string> OwnVisibleDevices(const RootPaths& paths) {
  if (const char* own = getenv(kVariable); own != nullptr) return own;
  const Environment first = BaseEnvironment(paths);
  const auto found = first.find(kVariable);
  if (found == first.end()) return std::nullopt;
  return found->second;
}

}  // namespace gpuctl
