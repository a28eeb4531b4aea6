#include "client/follow/run_outcome.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/follow/cluster_end.h"
#include "client/runs/run_end.h"
#include "client/streams/mirror.h"
#include "client/streams/mirror_reader.h"
#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
#include "common/job/lifecycle.h"

namespace gpuctl {
namespace {

// Records an end; of a run in an allocation, with the scheduler's word about it.
absl::Status Record(CommandContext& context, RunStore& store, RunRow& row, const RunEnd& known) {
  const RunEnd end = WithWordOfCluster(context, row, known);
  RETURN_IF_ERROR(store.SetEnd(row.run_id, end));
  row.end = end;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunStatus> MirroredStatus(CommandContext& context, const RunRow& row) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadMirrorLifecycle(paths.MirrorDir(row.run_id)));
  RunStatus status = DeriveStatus(row, lifecycle);
  AddQueueState(paths.MirrorDir(row.run_id), status);
  return status;
}

absl::StatusOr<bool> IsOfSeveral(RunStore& store, const RunRow& row) {
  if (!row.leader.empty()) return true;
  ASSIGN_OR_RETURN(const std::vector<std::string> members, store.MemberIds(row.run_id));
  return !members.empty();
}

absl::Status RecordOutcome(CommandContext& context, RunStore& store, RunRow& row,
                           const absl::Status& follow_result) {
  if (row.end.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  const std::string mirror_dir = paths.MirrorDir(row.run_id);
  MirrorReader mirror(mirror_dir, row.output_segment_bytes);
  // Not all of an output of gigabytes: the one who waits for the end needs its newest numbers.
  RETURN_IF_ERROR(mirror.Refresh());
  RETURN_IF_ERROR(mirror.RefreshOutputMetrics());
  const TrainingProgress& progress = mirror.progress();
  if (!progress.empty()) {
    row.step = progress.step();
    row.total_steps = progress.total_steps();
    row.loss = progress.loss();
    RETURN_IF_ERROR(store.SetProgress(row.run_id, row.step, row.total_steps, row.loss));
  }
  ASSIGN_OR_RETURN(const bool complete, MirrorIsComplete(mirror_dir, row.output_segment_bytes));
  ASSIGN_OR_RETURN(const bool of_several, IsOfSeveral(store, row));
  const bool may_change = of_several && !follow_result.ok() && !absl::IsNotFound(follow_result);
  const LifecycleEvent* last = LastStateEvent(mirror.lifecycle());
  if (complete && last != nullptr && !may_change) {
    return Record(context, store, row, EndOf(*last));
  }
  if (!absl::IsNotFound(follow_result)) return absl::OkStatus();
  RunEnd end;
  end.ended_ms = context.NowMs();
  end.source = EndSource::kGpuctl;
  end.reason = std::string(follow_result.message());
  if (FaultOf(follow_result) == LinkFault::kPreempted) end.cause = EndCause::kPreempted;
  // A machine that was taken away before the job began counts as preempted too.
  const bool known = row.accepted_ms > 0 || !mirror.lifecycle().events.empty() || IsPreempted(end);
  end.state = known ? gpuctl::v1::JOB_STATE_LOST : gpuctl::v1::JOB_STATE_UNSPECIFIED;
  end.exit_code = known ? kExitLost : kExitFailed;
  if (!known) end.reason = "its launch ended before the node had accepted it";
  return Record(context, store, row, end);
}

absl::Status RecordNodesEnd(CommandContext& context, RunStore& store, RunRow& row) {
  RETURN_IF_ERROR(RecordOutcome(context, store, row, absl::OkStatus()));
  if (row.end.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadMirrorLifecycle(paths.MirrorDir(row.run_id)));
  return IsOver(lifecycle) ? Record(context, store, row, EndOf(*LastStateEvent(lifecycle)))
                           : absl::OkStatus();
}

absl::Status RecordProbableEnd(CommandContext& context, RunStore& store, RunRow& row) {
  ASSIGN_OR_RETURN(const bool of_several, IsOfSeveral(store, row));
  return of_several ? absl::OkStatus() : RecordNodesEnd(context, store, row);
}

absl::Status NoEndError(const RunRow& row) {
  return absl::DataLossError(
      absl::StrCat(row.target.name, " says that ", row.name, " is over, but not how it ended"));
}

}  // namespace gpuctl
