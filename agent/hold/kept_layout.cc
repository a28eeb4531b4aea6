#include "agent/hold/kept_layout.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files/files.h"

namespace gpuctl {

std::optional<AllocationStart> ParseAllocationStart(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '-');
  AllocationStart start;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &start.job) ||
      !absl::SimpleAtoi(parts[1], &start.restart) || start.job < 1 || start.restart < 0) {
    return std::nullopt;
  }
  return start;
}

absl::StatusOr<std::string> NewestCopy(const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory);
  std::pair<int64_t, int64_t> newest = {-1, -1};
  std::string found;
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    const std::optional<AllocationStart> parsed = ParseAllocationStart(name);
    if (!parsed.has_value()) continue;
    const std::pair<int64_t, int64_t> start = {parsed->job, parsed->restart};
    if (start <= newest) continue;
    // A start that came no further than to its directory has nothing.
    if (!PathExists(RootPaths(JoinPath(directory, name)).node_id)) continue;
    newest = start;
    found = JoinPath(directory, name);
  }
  if (!found.empty()) return found;
  return absl::NotFoundError(
      absl::StrCat("nothing of the allocation was kept in ", directory, " on the login node"));
}

}  // namespace gpuctl
