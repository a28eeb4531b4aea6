#include "client/follow/catch_up.h"

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/wake_pipe.h"
#include "client/follow/ask_again.h"
#include "client/follow/follow_session.h"
#include "client/follow/run_outcome.h"
#include "client/node/make_links.h"
#include "client/streams/mirror.h"
#include "client/terminal/console.h"
#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
#include "common/job/lifecycle.h"
#include "common/process/signal_pipe.h"

namespace gpuctl {
namespace {

// Time that another process has to store what the node has, since it last stored something.
constexpr absl::Duration kOtherPatience = absl::Seconds(2);
// Interval of looks at a mirror that another process writes.
constexpr absl::Duration kLookAtOtherEvery = absl::Milliseconds(100);
// In which a node calls a job over whose last line it has sent.
constexpr absl::Duration kLastWord = absl::Seconds(2);

absl::Status Interrupted() {
  return WithExitCode(absl::CancelledError("interrupted"), kExitInterrupted);
}

// Returns true when a signal asks for the end. Stops the process after Ctrl-Z.
bool TakeInterrupt(SignalPipe& signals, FollowSession& session) {
  bool interrupted = false;
  for (const int signal : signals.Take()) {
    signal == SIGTSTP ? session.StopProcess() : void(interrupted = true);
  }
  return interrupted;
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
  ASSIGN_OR_RETURN(options.of_several, IsOfSeveral(store, row));
  return options;
}

absl::Status FollowQuietly(CommandContext& context, RunStore& store, RunRow& row,
                           LinkFactory& links, absl::Duration timeout, absl::Duration give_up_after,
                           const std::function<bool()>& until) {
  ASSIGN_OR_RETURN(FollowOptions options, WatchOptions(context, store, row));
  options.give_up_after = give_up_after;
  ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGINT, SIGTERM, SIGHUP, SIGTSTP}));
  FollowSession session(context, store, row, std::move(options), links, /*fail_fast=*/false);
  RETURN_IF_ERROR(session.Start(until));
  const absl::Duration begin = context.clock.SinceBoot();
  bool told_queue = false;
  while (true) {
    const FollowNews news = session.Take();
    for (const std::string& notice : news.notices) context.Say(notice);
    if (news.queue.has_value() && !std::exchange(told_queue, true)) {
      context.Say(absl::StrCat(row.name, " ", DescribeQueue(*news.queue)));
    }
    if (news.done) {
      RETURN_IF_ERROR((news.by_other || news.no_room) && news.result.ok()
                          ? RecordNodesEnd(context, store, row)
                          : RecordOutcome(context, store, row, news.result));
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
    if (TakeInterrupt(signals, session)) return Leave(context, session, Interrupted());
  }
}

// A catch-up: how far the mirror must come, and whether it still comes.
class CatchUpGoal {
 public:
  CatchUpGoal(std::string mirror_dir, int64_t segment_bytes, bool of_several, Clock& clock)
      : mirror_dir_(std::move(mirror_dir)),
        segment_bytes_(segment_bytes),
        of_several_(of_several),
        clock_(clock) {}

  // Returns kUp or kOver once the mirror has all that the node had, else nothing.
  absl::StatusOr<std::optional<Caught>> Look(const FollowNews& news) {
    if (wanted_ < 0) wanted_ = std::min(news.node_output_size, MirrorLimits().output);
    ASSIGN_OR_RETURN(const MirrorSizes sizes, ReadMirrorSizes(mirror_dir_, segment_bytes_));
    const int64_t stored = sizes.output + sizes.metrics + sizes.lifecycle;
    if (!news.by_other || stored != std::exchange(stored_, stored)) {
      grown_at_ = clock_.SinceBoot();
    }
    if (wanted_ < 0 || sizes.output < wanted_) return std::nullopt;
    // The end may have come with the last of the output.
    ASSIGN_OR_RETURN(const bool over, MirrorIsComplete(mirror_dir_, segment_bytes_));
    if (over && !of_several_) return Caught::kOver;
    // The node's word that all is over follows, unless another machine's part goes on.
    over_at_ = over ? std::min(over_at_, clock_.SinceBoot()) : absl::InfiniteDuration();
    if (over && clock_.SinceBoot() - over_at_ < kLastWord) return std::nullopt;
    ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadMirrorLifecycle(mirror_dir_));
    // What is missing of a job that is over comes soon, unless its writer has stopped.
    if (news.by_other && IsOver(lifecycle) && !of_several_) return std::nullopt;
    return Caught::kUp;
  }
  // True when another process has the mirror, and nothing comes.
  bool IsStuck() const { return clock_.SinceBoot() - grown_at_ >= kOtherPatience; }

 private:
  const std::string mirror_dir_;
  const int64_t segment_bytes_;
  const bool of_several_;
  Clock& clock_;
  absl::Duration over_at_ = absl::InfiniteDuration();
  int64_t wanted_ = -1, stored_ = -1;
  absl::Duration grown_at_ = absl::ZeroDuration();
};

namespace {

absl::Status StuckError(const RunRow& row) {
  return WithHint(absl::UnavailableError(absl::StrCat(
                      "another gpuctl has the files of ", row.name,
                      " here and does not go on (was it stopped with Ctrl-Z?); what is here may "
                      "be behind")),
                  "let that one go on with fg, or end it");
}

}  // namespace

struct CatchUpWork::Parts {
  std::unique_ptr<LinkFactory> links;
  std::unique_ptr<CatchUpGoal> goal;
  std::unique_ptr<FollowSession> session;  // last: its thread uses the links
  bool by_other = false;
  bool of_several = false;  // a run on several machines
};

CatchUpWork::CatchUpWork(CommandContext& context, RunStore& store, RunRow& row)
    : context_(context), store_(store), row_(row), parts_(std::make_unique<Parts>()) {}

CatchUpWork::~CatchUpWork() = default;

absl::StatusOr<std::optional<Caught>> CatchUpWork::Prepare(absl::Duration give_up_after) {
  // When the node cannot be asked, the recorded end is all that is known.
  error_ = AskAgain(context_, store_, row_);
  const bool finished = row_.end.has_value() && row_.end->state == gpuctl::v1::JOB_STATE_FINISHED;
  if (row_.end.has_value() && !finished) return Caught::kOver;
  ASSIGN_OR_RETURN(const ClientPaths paths, context_.Paths());
  const std::string mirror_dir = paths.MirrorDir(row_.run_id);
  ASSIGN_OR_RETURN(const bool complete, MirrorIsComplete(mirror_dir, row_.output_segment_bytes));
  ASSIGN_OR_RETURN(const bool of_several, IsOfSeveral(store_, row_));
  if (complete && (!of_several || row_.end.has_value())) {
    RETURN_IF_ERROR(RecordOutcome(context_, store_, row_, absl::OkStatus()));
    return Caught::kOver;
  }
  absl::StatusOr<std::unique_ptr<LinkFactory>> made = MakeLinks(context_, row_.target);
  if (!made.ok() && finished) {
    error_ = made.status();
    return Caught::kNot;
  }
  RETURN_IF_ERROR(made.status());
  parts_->links = *std::move(made);
  ASSIGN_OR_RETURN(FollowOptions options, WatchOptions(context_, store_, row_));
  parts_->of_several = of_several;
  options.give_up_after = give_up_after;
  // A follow without an end would keep one of the few channels of a shared connection.
  options.shares_connection = give_up_after < absl::InfiniteDuration();
  options.ask_beside_after = absl::ZeroDuration();
  parts_->goal = std::make_unique<CatchUpGoal>(mirror_dir, row_.output_segment_bytes, of_several,
                                               context_.clock);
  parts_->session = std::make_unique<FollowSession>(context_, store_, row_, std::move(options),
                                                    *parts_->links, /*fail_fast=*/false);
  return std::nullopt;
}

absl::Status CatchUpWork::Start() { return parts_->session->Start(); }

FollowSession* CatchUpWork::session() const { return parts_->session.get(); }

absl::Duration CatchUpWork::look_every() const {
  return parts_->by_other || parts_->of_several ? kLookAtOtherEvery : absl::InfiniteDuration();
}

absl::StatusOr<Caught> CatchUpWork::AfterEnd(const FollowNews& news) {
  // No Ctrl-C comes here: this end has closed the link to a node that was silent.
  const absl::Status result =
      absl::IsCancelled(news.result)
          ? absl::UnavailableError(absl::StrCat(row_.target.name, " does not answer"))
          : news.result;
  error_ = result;
  if (news.by_other && result.ok()) {
    // The node says that the job is over, and the other process does not store its end.
    RETURN_IF_ERROR(RecordNodesEnd(context_, store_, row_));
    ASSIGN_OR_RETURN(const ClientPaths paths, context_.Paths());
    ASSIGN_OR_RETURN(const bool whole,
                     MirrorIsComplete(paths.MirrorDir(row_.run_id), row_.output_segment_bytes));
    if (whole) return Caught::kOver;
    error_ = StuckError(row_);
    return Caught::kNot;
  }
  RETURN_IF_ERROR(result.ok() && news.no_room ? RecordNodesEnd(context_, store_, row_)
                                              : RecordOutcome(context_, store_, row_, result));
  if (absl::IsUnavailable(result)) return Caught::kNot;
  if (result.ok() || row_.end.has_value()) return Caught::kOver;
  return result;
}

absl::StatusOr<std::optional<Caught>> CatchUpWork::Step() {
  const FollowNews news = parts_->session->Take();
  parts_->by_other = news.by_other;
  heard_ = heard_ || news.heard_at.has_value();
  link_error_ = news.link_error;
  linked_ = news.linked || news.by_other;
  silence_ = news.silence;
  no_room_ = news.no_room;
  notices_.insert(notices_.end(), news.notices.begin(), news.notices.end());
  if (news.done) return AfterEnd(news);
  // Slurm has said so. It may stay so for days, and then nothing more is to be had than is here.
  if (FaultOf(news.link_error) == LinkFault::kSuspended) {
    error_ = news.link_error;
    return Caught::kNot;
  }
  ASSIGN_OR_RETURN(const std::optional<Caught> caught, parts_->goal->Look(news));
  if (caught == Caught::kOver) {
    RETURN_IF_ERROR(RecordOutcome(context_, store_, row_, absl::OkStatus()));
  }
  if (caught.has_value()) return caught;
  if (news.no_room) {
    RETURN_IF_ERROR(RecordProbableEnd(context_, store_, row_));
    error_ = absl::ResourceExhaustedError(
        absl::StrCat("the disk is nearly full; what is here of ", row_.name, " may be behind"));
    return Caught::kNot;
  }
  if (news.by_other && news.answer.has_value()) {
    if (news.answer->ok() && parts_->goal->IsStuck()) error_ = StuckError(row_);
    if (!news.answer->ok()) error_ = *news.answer;
    if (!error_.ok()) {
      RETURN_IF_ERROR(RecordProbableEnd(context_, store_, row_));
      return Caught::kNot;
    }
  }
  return std::nullopt;
}

absl::StatusOr<Caught> CatchUp(CommandContext& context, RunStore& store, RunRow& row,
                               absl::Duration give_up_after, absl::Status* error) {
  CatchUpWork work(context, store, row);
  absl::StatusOr<std::optional<Caught>> caught = work.Prepare(give_up_after);
  if (caught.ok() && !caught->has_value()) {
    ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGINT, SIGTERM, SIGHUP, SIGTSTP}));
    RETURN_IF_ERROR(work.Start());
    while (true) {
      caught = work.Step();
      for (const std::string& notice : work.TakeNotices()) context.Say(notice);
      if (!caught.ok() || caught->has_value()) break;
      WaitForNews({work.session()->wake_fd()}, signals, work.look_every());
      if (TakeInterrupt(signals, *work.session())) {
        return Leave(context, *work.session(), Interrupted());
      }
    }
  }
  *error = work.error();
  RETURN_IF_ERROR(caught.status());
  return **caught;
}

}  // namespace gpuctl
