#include "client/market/machine_users.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace gpuctl {

absl::StatusOr<RunRow> UserOf(RunStore& store, absl::string_view run_id) {
  ASSIGN_OR_RETURN(RunRow row, store.Get(run_id));
  if (row.end.has_value() || row.leader.empty()) return row;
  ASSIGN_OR_RETURN(const RunRow whole, store.Get(row.leader));
  row.end = whole.end;
  return row;
}

absl::StatusOr<std::vector<std::string>> LiveRunsOn(RunStore& store, const Lease& lease,
                                                    const std::set<std::string>& except) {
  std::vector<std::string> names;
  std::set<std::string> seen = except;
  for (const LeaseUse& use : lease.uses) {
    if (!seen.insert(use.run_id).second) continue;
    const absl::StatusOr<RunRow> row = UserOf(store, use.run_id);
    if (absl::IsNotFound(row.status())) continue;  // a launch that never came to a run
    RETURN_IF_ERROR(row.status());
    if (!row->end.has_value()) names.push_back(row->name);
  }
  return names;
}

absl::StatusOr<int64_t> IdleSinceMs(RunStore& store, const Lease& lease) {
  int64_t since_ms = 0;
  for (const LeaseUse& use : lease.uses) {
    const absl::StatusOr<RunRow> row = UserOf(store, use.run_id);
    if (absl::IsNotFound(row.status())) continue;
    RETURN_IF_ERROR(row.status());
    if (!row->end.has_value()) return 0;
    since_ms = std::max({since_ms, row->end->ended_ms, row->heard_ms});
  }
  return since_ms;
}

}  // namespace gpuctl
