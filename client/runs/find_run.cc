#include "client/runs/find_run.h"

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "common/base/status_macros.h"

namespace gpuctl {

absl::StatusOr<RunRow> FindNewestLiveRun(const Console& console, RunStore& store) {
  ASSIGN_OR_RETURN(const std::vector<RunRow> live, store.List(/*live_only=*/true, /*limit=*/1));
  if (live.empty()) {
    ASSIGN_OR_RETURN(const std::vector<RunRow> any, store.List(/*live_only=*/false, /*limit=*/1));
    return WithExitCode(
        WithHint(absl::NotFoundError("no run is live, and the command names none"),
                 any.empty() ? "start one: gpuctl launch -- COMMAND"
                             : "name one, or @last for the newest; gpuctl ps -a lists them"),
        kExitUsage);
  }
  console.Say(absl::StrCat("the newest live run is ", live.front().name));
  return store.Get(live.front().run_id);
}

absl::StatusOr<RunRow> FindRun(const Console& console, RunStore& store, const FlagSet::Flag& run,
                               const std::string& reference) {
  return run.given() ? store.Get(reference) : FindNewestLiveRun(console, store);
}

absl::StatusOr<std::vector<RunRow>> FindRuns(const Console& console, RunStore& store,
                                             const std::vector<std::string>& references) {
  std::vector<RunRow> rows;
  for (const std::string& reference : references) {
    ASSIGN_OR_RETURN(rows.emplace_back(), store.Get(reference));
  }
  if (references.empty()) {
    ASSIGN_OR_RETURN(rows.emplace_back(), FindNewestLiveRun(console, store));
  }
  return rows;
}

}  // namespace gpuctl
