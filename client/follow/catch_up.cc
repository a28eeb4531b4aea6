#include "client/follow/catch_up.h"

#include <csignal>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/wake_pipe.h"
#include "client/follow/follow_session.h"
#include "client/follow/run_outcome.h"
#include "client/node/make_links.h"
#include "client/streams/mirror.h"
#include "client/streams/mirror_reader.h"
#include "client/terminal/console.h"
#include "common/base/status_macros.h"
#include "common/process/signal_pipe.h"

namespace gpuctl {
namespace {

absl::Status Interrupted() {
  return WithExitCode(absl::CancelledError("interrupted"), kExitInterrupted);
}

// Ends the session and returns `status`; ends the process with it when the session does not end.
absl::Status Leave(CommandContext& context, FollowSession& session, const absl::Status& status) {
  if (!session.Finish(absl::Milliseconds(300))) ExitAtOnce(context, status);
  return status;
}

}  // namespace

absl::StatusOr<FollowOptions> WatchOptions(CommandContext& context, RunStore& store,
                                           const RunRow& row) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  FollowOptions options;
  options.job_id = row.job_id;
  ASSIGN_OR_RETURN(options.client_id, store.ClientId());
  options.mirror_dir = paths.MirrorDir(row.run_id);
  options.output_segment_bytes = row.output_segment_bytes;
  options.node_id = row.node_id;
  return options;
}

absl::Status FollowQuietly(CommandContext& context, RunStore& store, RunRow& row,
                           LinkFactory& links, absl::Duration timeout, absl::Duration give_up_after,
                           const std::function<bool()>& until) {
  ASSIGN_OR_RETURN(FollowOptions options, WatchOptions(context, store, row));
  options.give_up_after = give_up_after;
  ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGINT, SIGTERM, SIGHUP}));
  FollowSession session(context, store, row, std::move(options), links, /*fail_fast=*/false);
  RETURN_IF_ERROR(session.Start(until));
  const absl::Duration begin = context.clock.SinceBoot();
  while (true) {
    const FollowNews news = session.Take();
    for (const std::string& notice : news.notices) context.Say(notice);
    if (news.done) {
      RETURN_IF_ERROR(RecordOutcome(context, store, row, news.result));
      return news.result;
    }
    const absl::Duration left = timeout - (context.clock.SinceBoot() - begin);
    if (left <= absl::ZeroDuration()) {
      return Leave(
          context, session,
          WithHint(absl::DeadlineExceededError(absl::StrCat("wait for ", row.name, ": timed out")),
                   absl::StrCat("it goes on; gpuctl attach ", row.name, " shows it")));
    }
    WaitForNews({session.wake_fd()}, signals, left);
    if (!signals.Take().empty()) return Leave(context, session, Interrupted());
  }
}

absl::StatusOr<Caught> CatchUp(CommandContext& context, RunStore& store, RunRow& row,
                               absl::Duration give_up_after, absl::Status* error) {
  if (row.end.has_value()) return Caught::kOver;
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  const std::string mirror_dir = paths.MirrorDir(row.run_id);
  ASSIGN_OR_RETURN(const bool complete, MirrorIsComplete(mirror_dir, row.output_segment_bytes));
  if (complete) {
    RETURN_IF_ERROR(RecordOutcome(context, store, row, absl::OkStatus()));
    return Caught::kOver;
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  ASSIGN_OR_RETURN(FollowOptions options, WatchOptions(context, store, row));
  options.give_up_after = give_up_after;
  ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGINT, SIGTERM, SIGHUP}));
  MirrorReader mirror(mirror_dir, row.output_segment_bytes);
  FollowSession session(context, store, row, std::move(options), *links, /*fail_fast=*/false);
  RETURN_IF_ERROR(session.Start());
  int64_t wanted = -1;
  while (true) {
    const FollowNews news = session.Take();
    if (wanted < 0) wanted = news.node_output_size;
    if (news.done) {
      *error = news.result;
      RETURN_IF_ERROR(RecordOutcome(context, store, row, news.result));
      if (news.result.ok() || row.end.has_value()) return Caught::kOver;
      if (absl::IsUnavailable(news.result)) return Caught::kNot;
      return news.result;
    }
    ASSIGN_OR_RETURN(const Extent extent, mirror.OutputExtent());
    if (wanted >= 0 && extent.size >= wanted) {
      // The end may have come with the last of the output.
      ASSIGN_OR_RETURN(const bool over, MirrorIsComplete(mirror_dir, row.output_segment_bytes));
      if (!over) return Caught::kUp;
      RETURN_IF_ERROR(RecordOutcome(context, store, row, absl::OkStatus()));
      return Caught::kOver;
    }
    WaitForNews({session.wake_fd()}, signals, absl::InfiniteDuration());
    if (!signals.Take().empty()) return Leave(context, session, Interrupted());
  }
}

}  // namespace gpuctl
