#include "client/follow/stop_run.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/follow/ask_again.h"
#include "client/follow/catch_up.h"
#include "client/follow/run_outcome.h"
#include "client/node/explain_error.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/terminal/console.h"
#include "common/base/status_macros.h"
#include "common/job/job_layout.h"
#include "common/transfer/error_detail.h"

namespace gpuctl {
namespace {

// Longer than any grace that makes sense interactively; the node continues by itself.
constexpr absl::Duration kPatience = absl::Seconds(30);
// What a node may need beside the grace, on two clocks. One that has not ended the job by then lies
// or hangs.
constexpr absl::Duration kAfterGrace = absl::Minutes(1);

// Returns the time that the job has between SIGTERM and SIGKILL.
absl::Duration GraceOfRun(RunStore& store, const RunRow& row) {
  const absl::StatusOr<RunRow> whole = store.Get(row.run_id);
  const absl::StatusOr<StoredSpec> stored =
      whole.ok() ? ParseStoredSpec(whole->spec_json) : whole.status();
  return GraceOf(stored.ok() ? stored->spec : gpuctl::v1::JobSpec());
}

// Makes sure that a run that is recorded as never started does not start either. Its launch may
// only be slow, and another gpuctl took it for dead. Does nothing for other runs that are over.
absl::Status ForbidStart(CommandContext& context, RunStore& store, RunRow& row) {
  if (row.end->state != gpuctl::v1::JOB_STATE_UNSPECIFIED) return absl::OkStatus();
  const auto forbid = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
    ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context, *links, row.target));
    return calls.StopJob(row.job_id, "user", row.node_id).status();
  };
  const absl::Status stopped = forbid();
  // The node refuses the job from now on, or it is another node, which has nothing of it.
  if (absl::IsNotFound(stopped) ||
      DetailOf(stopped).kind() == gpuctl::v1::ErrorDetail::KIND_NODE_CHANGED) {
    return absl::OkStatus();
  }
  if (!stopped.ok()) {
    context.Warn(absl::StrCat(row.target.name, " could not be told that ", row.name,
                              " must not start: ", stopped.message()));
    return absl::OkStatus();
  }
  // It had started meanwhile.
  RETURN_IF_ERROR(store.UndoEnd(row.run_id, row.end->ended_ms));
  row.end.reset();
  return absl::OkStatus();
}

}  // namespace

absl::Status StopRun(CommandContext& context, RunStore& store, RunRow& row, bool wait) {
  if (const absl::Status asked = AskAgain(context, store, row); !asked.ok()) {
    context.Warn(absl::StrCat("it is not known whether ", row.name, " still runs: ",
                              row.target.name, " could not be asked again: ", asked.message()));
  }
  if (row.end.has_value()) RETURN_IF_ERROR(ForbidStart(context, store, row));
  if (row.end.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  bool over = false;  // it had ended before it was told to
  {
    ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context, *links, row.target));
    const absl::StatusOr<gpuctl::v1::Job> stopped = calls.StopJob(row.job_id, "user", row.node_id);
    if (absl::IsNotFound(stopped.status())) {
      return RecordOutcome(context, store, row, stopped.status());
    }
    if (DetailOf(stopped.status()).kind() == gpuctl::v1::ErrorDetail::KIND_NODE_CHANGED) {
      return RecordOutcome(
          context, store, row,
          absl::NotFoundError(absl::StrCat("the job is lost: ", stopped.status().message())));
    }
    RETURN_IF_ERROR(stopped.status());
    over = stopped->state() == gpuctl::v1::JOB_STATE_FINISHED ||
           stopped->state() == gpuctl::v1::JOB_STATE_LOST;
  }
  if (!wait && !over) return absl::OkStatus();
  if (!over) {
    context.Say(absl::StrCat(row.name,
                             " was told to stop and may save first; "
                             "waiting (Ctrl-C stops the waiting only)"));
  }
  const absl::Duration grace = GraceOfRun(store, row);
  const absl::Status followed =
      FollowQuietly(context, store, row, *links, grace + kAfterGrace, kPatience, nullptr);
  if (row.end.has_value()) return absl::OkStatus();
  if (absl::IsDeadlineExceeded(followed)) {
    return WithExitCode(absl::DeadlineExceededError(absl::StrCat(
                            row.name, " was told to stop, and has not ended within its grace of ",
                            HumanDuration(grace), " and a minute")),
                        kExitTimeout);
  }
  if (absl::IsCancelled(followed)) {
    return WithExitCode(absl::CancelledError(absl::StrCat("wait for ", row.name,
                                                          ": interrupted; it was told to stop")),
                        kExitInterrupted);
  }
  if (followed.ok()) return NoEndError(row);
  return ExplainLinkError(followed, row.target);
}

}  // namespace gpuctl
