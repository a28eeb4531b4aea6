#include "client/follow/stop_call.h"

#include "absl/strings/str_cat.h"
#include "client/base/quantity.h"
#include "client/base/wake_pipe.h"
#include "client/node/node_calls.h"
#include "common/base/status_macros.h"

namespace gpuctl {

StopCall::StopCall(CommandContext& context, LinkFactory& links, const RunRow& row)
    : context_(context), links_(links), row_(row), worker_(context.clock) {}

absl::Status StopCall::Ask() {
  ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context_, links_, row_.target));
  return calls.StopJob(row_.job_id, "user", row_.node_id).status();
}

absl::Status StopCall::Run(SignalPipe& signals, absl::Duration limit) {
  const absl::Duration end = context_.clock.SinceBoot() + limit;
  RETURN_IF_ERROR(worker_.Start([this] {
    const absl::Status answer = Ask();
    worker_.Update([&answer](News& news) { news.answer = answer; });
  }));
  while (true) {
    const News news = worker_.Take();
    if (news.done) return news.answer;
    const bool interrupted = !signals.Take().empty();
    const absl::Duration left = end - context_.clock.SinceBoot();
    stuck_ = interrupted || left <= absl::ZeroDuration();
    if (interrupted) return absl::CancelledError("interrupted");
    if (stuck_) {
      return absl::UnavailableError(
          absl::StrCat(row_.target.name, " did not answer within ", HumanDuration(limit)));
    }
    WaitForNews({worker_.wake_fd()}, signals, left);
  }
}

}  // namespace gpuctl
