// The checkpoint on this laptop with which a run begins.
#ifndef GPUCTL_CLIENT_PLAN_START_POINT_H_
#define GPUCTL_CLIENT_PLAN_START_POINT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

struct StartPoint {
  std::string path;      // absolute
  bool is_file = false;  // a script's single file, not a directory
  int64_t step = -1;     // -1: not known
};

// Returns the newest intact checkpoint of the run itself at home; nothing when there is none. Says
// which ones it passes over.
absl::StatusOr<std::optional<StartPoint>> NewestAtHome(CommandContext& context, const RunRow& row);

// Returns with what each part of a run on several machines goes on, `parts` by rank, the run's own
// first: the newest checkpoint, by step, that is intact at home of each part that has any. A part
// that has none gets the first one's, as most scripts write theirs on one machine and read it on
// all. Nothing when there is no such checkpoint. Of a run on one machine that is NewestAtHome.
absl::StatusOr<std::vector<StartPoint>> NewestOfAll(CommandContext& context,
                                                    const std::vector<RunRow>& parts);

// Returns the checkpoint that --from names, or a usage error. Nobody checks that it is whole.
absl::StatusOr<StartPoint> NamedStart(const std::string& from);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_PLAN_START_POINT_H_
