#include "client/follow/stop_run.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/follow/ask_again.h"
#include "client/follow/catch_up.h"
#include "client/follow/run_outcome.h"
#include "client/node/explain_error.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/terminal/console.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

// Longer than any grace that makes sense interactively; the node continues by itself.
constexpr absl::Duration kPatience = absl::Seconds(30);

}  // namespace

absl::Status StopRun(CommandContext& context, RunStore& store, RunRow& row, bool wait) {
  if (const absl::Status asked = AskAgain(context, store, row); !asked.ok()) {
    context.Say(absl::StrCat("it is not known whether ", row.name, " still runs: ", row.target.name,
                             " could not be asked again: ", asked.message()));
  }
  if (row.end.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  {
    ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context, *links, row.target));
    const absl::Status stopped = calls.StopJob(row.job_id, "user").status();
    if (absl::IsNotFound(stopped)) return RecordOutcome(context, store, row, stopped);
    RETURN_IF_ERROR(stopped);
  }
  if (!wait) return absl::OkStatus();
  context.Say(absl::StrCat(row.name,
                           " was told to stop and may save first; "
                           "waiting (Ctrl-C stops the waiting only)"));
  const absl::Status followed =
      FollowQuietly(context, store, row, *links, absl::InfiniteDuration(), kPatience, nullptr);
  if (row.end.has_value()) return absl::OkStatus();
  if (absl::IsCancelled(followed)) {
    return WithExitCode(absl::CancelledError(absl::StrCat("wait for ", row.name,
                                                          ": interrupted; it was told to stop")),
                        kExitInterrupted);
  }
  return ExplainLinkError(followed, row.target);
}

}  // namespace gpuctl
