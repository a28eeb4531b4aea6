#include "client/follow/ask_again.h"

#include <memory>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/node/make_links.h"
#include "client/runs/run_status.h"
#include "client/streams/ask_job.h"
#include "client/streams/mirror.h"
#include "client/terminal/console.h"
#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
#include "common/job/lifecycle.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kAskPatience = absl::Seconds(10);

// Returns the job's end according to its lifecycle here; nothing when it has none.
absl::StatusOr<std::optional<RunEnd>> EndHere(CommandContext& context, const RunRow& row) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadMirrorLifecycle(paths.MirrorDir(row.run_id)));
  if (!IsOver(lifecycle)) return std::nullopt;
  return EndOf(*LastStateEvent(lifecycle));
}

absl::Status Undo(CommandContext& context, RunStore& store, RunRow& row) {
  RETURN_IF_ERROR(store.UndoEnd(row.run_id, row.end->ended_ms));
  if (row.accepted_ms == 0) {
    row.accepted_ms = context.NowMs();
    RETURN_IF_ERROR(store.SetAccepted(row.run_id, row.node_id, row.accepted_ms));
  }
  row.end.reset();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<bool> EndIsConcluded(CommandContext& context, const RunRow& row) {
  // A run that no node was asked to start is nowhere.
  if (!row.end.has_value() || row.node_id.empty()) return false;
  if (row.end->source != EndSource::kGpuctl || IsPreempted(*row.end)) return false;
  if (row.end->state == gpuctl::v1::JOB_STATE_FINISHED) return false;
  if (absl::StartsWith(row.end->reason, kSlurmReason)) return false;
  ASSIGN_OR_RETURN(const std::optional<RunEnd> here, EndHere(context, row));
  return !here.has_value() || here->state != row.end->state;
}

absl::Status AskAgain(CommandContext& context, RunStore& store, RunRow& row) {
  ASSIGN_OR_RETURN(const bool concluded, EndIsConcluded(context, row));
  if (!concluded) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::optional<RunEnd> here, EndHere(context, row));
  if (here.has_value()) {
    RETURN_IF_ERROR(Undo(context, store, row));
    RETURN_IF_ERROR(store.SetEnd(row.run_id, *here));
    row.end = here;
    context.Say(absl::StrCat(row.name, " was taken for lost, but its own end is here"));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  const absl::StatusOr<std::unique_ptr<Link>> connected = links->ConnectForCalls();
  // A machine that was given back has no job of ours any more.
  const LinkFault fault = FaultOf(connected.status());
  if (fault == LinkFault::kReleased || fault == LinkFault::kNothingKept) return absl::OkStatus();
  RETURN_IF_ERROR(connected.status());
  Link* const link = connected->get();
  const absl::StatusOr<JobAnswer> answer = AskJob(*link, row.job_id, {}, kAskPatience);
  if (absl::IsNotFound(answer.status())) return absl::OkStatus();
  RETURN_IF_ERROR(answer.status());
  if (answer->heartbeat.node_id() != row.node_id) return absl::OkStatus();
  RETURN_IF_ERROR(Undo(context, store, row));
  context.Say(absl::StrCat(row.name, " was taken for lost, but ", row.target.name,
                           " answers again and has it"));
  return absl::OkStatus();
}

}  // namespace gpuctl
