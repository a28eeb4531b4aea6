// The checkpoint on this laptop with which a run begins.
#ifndef GPUCTL_CLIENT_RESULTS_START_POINT_H_
#define GPUCTL_CLIENT_RESULTS_START_POINT_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

struct StartPoint {
  std::string path;      // absolute
  bool is_file = false;  // a script's single file, not a directory
};

// Returns the newest intact checkpoint of the run itself at home; nothing when there is none. Says
// which ones it passes over.
absl::StatusOr<std::optional<StartPoint>> NewestAtHome(CommandContext& context, const RunRow& row);

// Returns the checkpoint that --from names, or a usage error. Nobody checks that it is whole.
absl::StatusOr<StartPoint> NamedStart(const std::string& from);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RESULTS_START_POINT_H_
