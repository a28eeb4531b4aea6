#include "client/follow/live_now.h"

#include "client/follow/catch_up.h"
#include "client/follow/run_outcome.h"
#include "client/market/machine_users.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kNodeAnswersWithin = absl::Seconds(10);

}  // namespace

absl::StatusOr<std::vector<std::string>> LiveNowOn(CommandContext& context, RunStore& store,
                                                   const Lease& lease,
                                                   const std::set<std::string>& except) {
  ASSIGN_OR_RETURN(const std::vector<std::string> noted, LiveRunsOn(store, lease, except));
  if (noted.empty()) return noted;
  std::set<std::string> seen = except;
  for (const LeaseUse& use : lease.uses) {
    if (!seen.insert(use.run_id).second) continue;
    absl::StatusOr<RunRow> row = store.Get(use.run_id);
    if (!row.ok() || row->end.has_value()) continue;
    absl::Status error;
    const absl::StatusOr<Caught> caught = CatchUp(context, store, *row, kNodeAnswersWithin, &error);
    if (absl::IsCancelled(caught.status())) return caught.status();
    // A machine that does not answer is asked once.
    if (!caught.ok() || (*caught == Caught::kNot && !row->end.has_value())) break;
    // All that the node had may have come before its word that the job is over.
    if (*caught == Caught::kUp) RETURN_IF_ERROR(RecordProbableEnd(context, store, *row));
  }
  return LiveRunsOn(store, lease, except);
}

}  // namespace gpuctl
