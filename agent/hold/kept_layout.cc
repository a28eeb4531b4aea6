#include "agent/hold/kept_layout.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files/files.h"

namespace gpuctl {

absl::StatusOr<std::string> NewestCopy(const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory);
  std::pair<int64_t, int64_t> newest = {-1, -1};
  std::string found;
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    const std::vector<absl::string_view> parts = absl::StrSplit(name, '-');
    std::pair<int64_t, int64_t> start;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &start.first) ||
        !absl::SimpleAtoi(parts[1], &start.second) || start <= newest) {
      continue;
    }
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
