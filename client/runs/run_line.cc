#include "client/runs/run_line.h"

#include <algorithm>

#include "absl/status/statusor.h"

namespace gpuctl {

std::vector<std::string> LineOf(RunStore& store, const RunRow& row) {
  std::vector<std::string> line = {row.run_id};
  std::string before = row.resumed_from;
  while (!before.empty() && std::find(line.begin(), line.end(), before) == line.end()) {
    line.push_back(before);
    const absl::StatusOr<RunRow> earlier = store.Get(before);
    if (!earlier.ok()) break;  // it was removed from the list
    before = earlier->resumed_from;
  }
  return line;
}

}  // namespace gpuctl
