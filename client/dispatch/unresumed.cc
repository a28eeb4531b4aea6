#include "client/dispatch/unresumed.h"

#include <string>

#include "client/base/paths.h"
#include "client/runs/given_up.h"
#include "client/runs/run_line.h"
#include "client/runs/run_status.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

bool IsResumed(const ClientPaths& paths, RunStore& runs, const EntryView& view) {
  if (IsGivenUp(paths.MirrorDir(view.run->run_id))) return false;
  // What is listed has not all of a row.
  const absl::StatusOr<RunRow> row = runs.Get(view.run->run_id);
  if (!row.ok()) return true;
  std::vector<std::string> mirrors;
  for (const std::string& run_id : LineOf(runs, *row)) mirrors.push_back(paths.MirrorDir(run_id));
  return RetriesUsed(mirrors) <= view.entry.resumes;
}

}  // namespace

absl::Status EndUnresumed(CommandContext& context, RunStore& runs, BatchStore& batches,
                          const std::vector<BatchView>& open) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  for (const BatchView& batch : open) {
    for (const EntryView& view : batch.entries) {
      if (!WaitsToBeResumed(view) || IsResumed(paths, runs, view)) continue;
      RETURN_IF_ERROR(batches.EndResumes(view.entry.entry_id, view.run->run_id));
    }
  }
  return absl::OkStatus();
}

}  // namespace gpuctl
