#include "client/show/show_run.h"

#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/base/shell_quote.h"
#include "client/base/wake_pipe.h"
#include "client/bill/forecast.h"
#include "client/bill/lease_view.h"
#include "client/bill/run_machines.h"
#include "client/follow/catch_up.h"
#include "client/follow/follow_session.h"
#include "client/follow/output_hint.h"
#include "client/follow/run_outcome.h"
#include "client/follow/stop_call.h"
#include "client/market/holdings.h"
#include "client/metrics/plot.h"
#include "client/node/explain_error.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/notify/tell_end.h"
#include "client/reach/port_forward.h"
#include "client/reach/ssh_files.h"
#include "client/runs/run_end.h"
#include "client/runs/run_status.h"
#include "client/show/give_secrets.h"
#include "client/show/run_view.h"
#include "client/show/screen_loan.h"
#include "client/terminal/console.h"
#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/process/signal_pipe.h"

namespace gpuctl {
namespace {

// Time after a Ctrl-C in which a second one asks whether the job shall stop.
constexpr absl::Duration kSecondInterrupt = absl::Milliseconds(300);
// Time that a node has to send its display tail before the mirror is shown instead.
constexpr absl::Duration kTailPatience = absl::Seconds(2);
constexpr absl::Duration kPatience = absl::Milliseconds(300);
constexpr absl::Duration kLostPatience = absl::Minutes(1);
// Time for a node to say whether it has the job of a launch that failed, and of one whose user
// waits for the prompt.
constexpr absl::Duration kAskPatience = absl::Minutes(1);
constexpr absl::Duration kLeavePatience = absl::Seconds(5);
constexpr absl::Duration kReadLeaseEvery = absl::Seconds(10);
constexpr absl::Duration kRedrawEvery = absl::Milliseconds(500);
// Time after which the last look for checkpoints is announced.
constexpr absl::Duration kTellAfter = absl::Seconds(1);
constexpr int kBytesPerRow = 160;

// Returns the hint for a command that could not be executed; "" when there is none.
std::string CannotRunHint(int exit_code, absl::string_view reason) {
  absl::string_view name = reason;
  const bool named = absl::ConsumePrefix(&name, "exec ");
  name = name.substr(0, name.find(": "));
  if (named && absl::EndsWith(name, ".py") && IsPlainWord(name)) {
    return absl::StrCat("a script needs its interpreter: -- python3 ", name);
  }
  if (exit_code == kExitNotFound && named && name == "python") return kNoPythonHint;
  if (exit_code == kExitNotFound) {
    return "is it installed there and in PATH? A file of the work directory begins with ./, a "
           "shell line goes to --run";
  }
  if (exit_code == kExitCannotRun && named) return "is it a program, and executable (chmod +x)?";
  return "";
}

// One run being shown. It is a class because the parts of the loop share much state.
class Show {
 public:
  Show(CommandContext& context, RunStore& store, RunRow& row, LinkFactory* links,
       ShowRunOptions& options)
      : context_(context),
        store_(store),
        row_(row),
        links_(links),
        options_(options),
        holdings_(context) {}

  absl::StatusOr<int> Run();
  // Ends what is still at work after an error in Run.
  void Leave();
  // True when Ctrl-C has come since the last call.
  bool Interrupted() { return signals_ != nullptr && !signals_->Take().empty(); }
  // True when the link's thread does not end: then this object must not be destroyed.
  bool stuck() const { return stuck_; }

 private:
  absl::Status Begin();
  bool NamesNoResults() const;
  absl::StatusOr<bool> OnSignals();
  absl::Status LendScreen();
  absl::StatusOr<bool> Draw();
  absl::Status OfferStop();
  void OnNews();
  void TellQueue();
  void TellAttempt();
  void TellLingering();
  // Gives the node the values of the secrets that it has lost.
  void GiveSecretsOnce();
  bool Finished();
  absl::Status BeginPull();
  void OnPullNews();
  absl::Status BeginForward();
  void OnForwardNews();
  void EndForward();
  void AwaitPull();
  absl::StatusOr<int> Conclude();
  absl::StatusOr<int> Detach();
  absl::StatusOr<int> AbandonLaunch(const absl::Status& why);
  std::string NothingStarted() const;
  void PrintEnd();
  PanelState LinkState();
  std::string MoneyText();

  CommandContext& context_;
  RunStore& store_;
  RunRow& row_;
  LinkFactory* links_;  // null for a run that has ended
  ShowRunOptions& options_;
  std::string mirror_dir_;
  std::unique_ptr<SignalPipe> signals_;
  std::unique_ptr<MirrorReader> mirror_;
  std::unique_ptr<FollowSession> session_;
  std::unique_ptr<RunView> view_;
  std::unique_ptr<CheckpointWatch> pull_;
  std::unique_ptr<PortForward> forward_;
  bool forward_over_ = false;  // it ended by itself, which was told
  std::unique_ptr<StopCall> stop_call_;
  FollowNews news_;
  Holdings holdings_;
  RunMachines machines_;
  int64_t lease_read_ms_ = 0;
  bool gave_secrets_ = false, told_lingering_ = false;
  int told_attempt_ = 1;
  std::string queue_text_;  // as last told; "" while the run does not wait
  bool has_panel_ = false;
  absl::Duration begun_, interrupted_at_ = absl::InfiniteDuration();
  bool detached_ = false, interrupted_again_ = false, reader_gone_ = false, stuck_ = false;
  int ended_by_signal_ = 0;
  StartAnswer start_answer_ = StartAnswer::kNotAsked;
  // True when content of the launch is being sent, or was.
  const std::shared_ptr<std::atomic<bool>> sends_ = std::make_shared<std::atomic<bool>>(false);
  // Whoever sends content has the screen meanwhile.
  const std::shared_ptr<ScreenLoan> screen_ = std::make_shared<ScreenLoan>();
  bool lent_ = false;
};

absl::Status Show::Begin() {
  ASSIGN_OR_RETURN(FollowOptions follow, WatchOptions(context_, store_, row_));
  mirror_dir_ = follow.mirror_dir;
  mirror_ = std::make_unique<MirrorReader>(mirror_dir_, row_.output_segment_bytes);
  RETURN_IF_ERROR(mirror_->Refresh());
  if (const LifecycleEvent* last = LastStateEvent(mirror_->lifecycle())) {
    told_attempt_ = last->type == LifecycleEvent::Type::kRetry ? last->attempt - 1 : last->attempt;
  }
  RunViewOptions view;
  view.show_output = options_.show_output && !context_.json() && !options_.until_running;
  view.panel =
      view.show_output && context_.terminal.animation && !options_.plain && !context_.quiet;
  has_panel_ = view.panel;
  view.begin = options_.begin;
  view.filter = options_.filter;
  if (view.panel && !options_.from_beginning && !options_.start.has_value()) {
    const int64_t screenful =
        int64_t{kBytesPerRow} * std::max(4, GetTerminalSize(STDOUT_FILENO).rows - 6);
    ASSIGN_OR_RETURN(const Extent extent, mirror_->OutputExtent());
    view.begin = std::max<int64_t>(0, extent.size - screenful);
    follow.display_tail_bytes = screenful;
    // The mirror's content is shown at once; only an empty mirror has to wait for the node.
    view.await_tail = extent.size == 0 && !row_.end.has_value();
  }
  RETURN_IF_ERROR(screen_->Open());
  if (options_.start.has_value() && options_.start->push_content) {
    options_.start->push_content = [push = options_.start->push_content, sends = sends_,
                                    screen = has_panel_ ? screen_ : nullptr] {
      *sends = true;
      if (screen != nullptr) screen->Borrow();
      absl::Status pushed = push();
      if (screen != nullptr) screen->Return();
      return pushed;
    };
  }
  follow.start = options_.start;
  follow.brings_home = options_.pull.has_value();
  if (options_.start.has_value()) options_.start->mirror.reset();  // the session has it
  ASSIGN_OR_RETURN(SignalPipe signals,
                   SignalPipe::Install({SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP}));
  signals_ = std::make_unique<SignalPipe>(std::move(signals));
  begun_ = context_.clock.SinceBoot();
  if (!row_.end.has_value()) {
    const bool fail_fast = options_.start.has_value();
    session_ = std::make_unique<FollowSession>(context_, store_, row_, std::move(follow), *links_,
                                               fail_fast);
    std::function<bool()> until;
    if (options_.until_running) {
      until = [dir = mirror_dir_] {
        const absl::StatusOr<Lifecycle> lifecycle = ReadMirrorLifecycle(dir);
        // The node starts by itself what it has in its queue.
        return lifecycle.ok() &&
               (LastStateEvent(*lifecycle) != nullptr || QueuedEvent(*lifecycle) != nullptr);
      };
    }
    RETURN_IF_ERROR(session_->Start(until));
  }
  view_ = std::make_unique<RunView>(context_, row_, *mirror_, view);
  return absl::OkStatus();
}

// Returns what the run's machine costs, for the panel; "" when it is not rented.
std::string Show::MoneyText() {
  const int64_t now_ms = context_.NowMs();
  if (now_ms >= lease_read_ms_ + absl::ToInt64Milliseconds(kReadLeaseEvery)) {
    lease_read_ms_ = now_ms;
    // An error leaves what was known: money is told by ps too, with its errors.
    const absl::StatusOr<Ledger*> ledger = holdings_.FindLedger();
    absl::StatusOr<RunMachines> machines = RunMachines();
    if (ledger.ok() && *ledger != nullptr) machines = MachinesOfRun(**ledger, store_, row_);
    if (ledger.ok() && machines.ok()) machines_ = *std::move(machines);
  }
  if (machines_.empty()) return "";
  const RunStatus status = DeriveStatus(row_, mirror_->lifecycle());
  std::string done;
  const std::optional<absl::Duration> eta = mirror_->progress().Eta();
  if (!status.over && eta.has_value() && AnyOpen(machines_)) {
    const Forecast forecast =
        ForecastOf(machines_, status.started_ms, now_ms + absl::ToInt64Milliseconds(*eta), now_ms);
    done = ForecastPart(forecast, machines_, now_ms);
  }
  return CostLine(machines_, status.over ? -1 : status.started_ms, now_ms, done);
}

PanelState Show::LinkState() {
  PanelState state;
  if (has_panel_) state.money = MoneyText();
  state.queue = queue_text_;
  if (const std::optional<SetupState> setup = SetupOf(mirror_->lifecycle());
      setup.has_value() && setup->running) {
    state.queue = absl::StrCat("setting up ", DescribeSetup(*setup, context_.NowMs()));
  }
  if (const LifecycleEvent* lingering = LingeringEvent(mirror_->lifecycle())) {
    state.queue = DescribeLingering(*lingering, context_.NowMs());
  }
  state.linked = news_.linked;
  state.ever_linked = news_.ever_linked || news_.accepted;
  state.by_other = news_.by_other;
  state.silence = news_.silence;
  state.link_error = std::string(news_.link_error.message());
  if (!news_.linked && FaultOf(news_.link_error) == LinkFault::kNotHeld) {
    // Nothing is wrong with the link: its machine waits for its start.
    state.queue = state.link_error;
    state.link_error.clear();
    state.linked = state.ever_linked = true;
    state.silence.reset();
  }
  // Nothing runs yet that could go on.
  const bool launching = options_.start.has_value() && !news_.accepted && row_.accepted_ms == 0;
  state.hint = launching ? "Ctrl-C cancels" : "Ctrl-C detaches";
  if (session_ == nullptr) {
    state.linked = true;
    state.ever_linked = true;
    state.hint.clear();
  }
  return state;
}

void Show::OnNews() {
  if (session_ == nullptr) return;
  const bool was_accepted = news_.accepted;
  news_ = session_->Take();
  if (news_.accepted && !was_accepted && row_.accepted_ms == 0) {
    row_.accepted_ms = context_.NowMs();
    if (const absl::StatusOr<ClientPaths> paths = context_.Paths(); paths.ok()) {
      ListSshHost(*paths, row_);
    }
    if (!options_.until_running && !news_.queue.has_value()) {
      view_->AddNotice(absl::StrCat(row_.name, " runs on ", row_.target.name));
    }
  }
  TellQueue();
  TellAttempt();
  TellLingering();
  for (const auto& [offset, bytes] : news_.tail) view_->AddTail(offset, bytes);
  for (const std::string& notice : news_.notices) view_->AddNotice(notice);
  const bool patience_over = context_.clock.SinceBoot() - begun_ > kTailPatience;
  if (view_->awaiting_tail() && (news_.heartbeat || news_.done || patience_over)) {
    view_->StopAwaitingTail();
  }
}

// Tells what the run waits for when that changes. A panel shows the rest.
void Show::TellQueue() {
  const std::string text = news_.queue.has_value() ? DescribeQueue(*news_.queue) : "";
  if (text == queue_text_) return;
  const bool first = queue_text_.empty();
  queue_text_ = text;
  if (options_.plain) return;
  if (text.empty()) {
    const bool began = LastStateEvent(mirror_->lifecycle()) != nullptr;
    if (began) view_->AddNotice(absl::StrCat(row_.name, " has its GPUs and runs"));
    return;
  }
  if (first || !has_panel_) {
    view_->AddNotice(absl::StrCat(row_.name, " ", text, " on ", row_.target.name));
  }
  if (news_.queue->needs_secrets) GiveSecretsOnce();
}

// Tells of each attempt that begins after the first, which a retry has brought.
void Show::TellAttempt() {
  // A short attempt may be over by now.
  for (const LifecycleEvent& event : mirror_->lifecycle().events) {
    if (event.type != LifecycleEvent::Type::kStarted || event.attempt <= told_attempt_) continue;
    told_attempt_ = event.attempt;
    if (options_.plain) continue;
    view_->AddNotice(absl::StrCat(row_.name, ": attempt ", event.attempt,
                                  event.detail.empty() ? " begins" : " ", event.detail));
  }
}

// Without a panel a run whose command has ended would seem to hang.
void Show::TellLingering() {
  if (has_panel_ || options_.plain || told_lingering_) return;
  const LifecycleEvent* lingering = LingeringEvent(mirror_->lifecycle());
  if (lingering == nullptr) return;
  told_lingering_ = true;
  view_->AddNotice(absl::StrCat(row_.name, ": ", DescribeLingering(*lingering, context_.NowMs())));
}

void Show::GiveSecretsOnce() {
  if (std::exchange(gave_secrets_, true)) return;
  const absl::Status given = GiveSecrets(context_, store_, row_);
  view_->AddNotice(given.ok() ? "they were given to it again"
                              : absl::StrCat(given.message(), "; gpuctl attach ", row_.name,
                                             " gives them, once they are here"));
}

// Handles signals. Returns true when the show is over.
absl::StatusOr<bool> Show::OnSignals() {
  for (const int signal : signals_->Take()) {
    switch (signal) {
      case SIGINT:
        interrupted_again_ = detached_;
        detached_ = true;
        interrupted_at_ = std::min(interrupted_at_, context_.clock.SinceBoot());
        break;
      case SIGTERM:
      case SIGHUP:
        detached_ = true;
        ended_by_signal_ = signal;
        break;
      case SIGTSTP:
        if (!lent_) RETURN_IF_ERROR(view_->Suspend());
        session_ == nullptr ? void(raise(SIGSTOP)) : session_->StopProcess();
        if (!lent_) view_->Resume();
        break;
      default:
        break;  // SIGWINCH: the next frame reads the size
    }
  }
  return detached_;
}

// Removes the panel for the thread that sends, or shows it again.
absl::Status Show::LendScreen() {
  const ScreenLoan::State state = screen_->Look();
  const bool asked = state == ScreenLoan::State::kWanted || state == ScreenLoan::State::kLent;
  if (asked && !lent_) RETURN_IF_ERROR(view_->Suspend());
  if (!asked && lent_) view_->Resume();
  lent_ = asked;
  asked ? screen_->Lend() : screen_->Keep();
  return absl::OkStatus();
}

// Draws a frame, unless another thread has the screen. Returns true when there is more to draw.
absl::StatusOr<bool> Show::Draw() {
  RETURN_IF_ERROR(LendScreen());
  if (lent_) return false;
  return view_->Update(LinkState(), signals_->fd());
}

// Starts the download of checkpoints once the node has the job: earlier there are none.
absl::Status Show::BeginPull() {
  const bool accepted = news_.accepted || row_.accepted_ms > 0;
  if (pull_ != nullptr || !options_.pull.has_value() || !accepted) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::unique_ptr<LinkFactory> links, MakeLinks(context_, row_.target));
  pull_ = std::make_unique<CheckpointWatch>(context_, row_, std::move(links), *options_.pull);
  return pull_->Start();
}

void Show::OnPullNews() {
  if (pull_ == nullptr) return;
  for (const std::string& notice : pull_->Take().notices) view_->AddNotice(notice);
}

// Waits for the newest checkpoint after the run has ended and its output is shown.
void Show::AwaitPull() {
  if (pull_ == nullptr) return;
  bool interrupted = !row_.end.has_value();
  bool told = false;
  if (row_.end.has_value() && IsPreempted(*row_.end)) {
    // The machine is gone, so nothing can be downloaded; a current transfer ends with its link.
    stuck_ = !pull_->Cancel(kLostPatience);
    if (options_.all_came != nullptr) *options_.all_came = true;
    return;
  }
  if (!interrupted) pull_->RunIsOver();
  while (!interrupted) {
    const CheckpointWatch::News news = pull_->Take();
    for (const std::string& notice : news.notices) {
      context_.Say(notice);
    }
    if (news.done) {
      if (options_.all_came != nullptr) *options_.all_came = news.missed.ok();
      break;
    }
    const absl::Duration patience = told ? absl::InfiniteDuration() : kTellAfter;
    if (!WaitForNews({pull_->wake_fd()}, *signals_, patience)) {
      context_.Say("bringing the last checkpoints home; Ctrl-C leaves them");
      told = true;
    }
    interrupted = !signals_->Take().empty();
  }
  if (interrupted && !pull_->Cancel(kPatience)) stuck_ = true;
}

// Forwards the run's ports once the node has the job.
absl::Status Show::BeginForward() {
  const bool accepted = news_.accepted || row_.accepted_ms > 0;
  if (forward_ != nullptr || row_.ports.empty() || !accepted || session_ == nullptr ||
      options_.plain || options_.until_running) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(std::vector<PortPair> pairs, ParsePortPairs(row_.ports));
  forward_ = std::make_unique<PortForward>(context_, row_, std::move(pairs));
  return forward_->Start();
}

void Show::OnForwardNews() {
  if (forward_ == nullptr || forward_over_) return;
  const PortForward::News news = forward_->Take();
  for (const PortPair& pair : news.ready) {
    view_->AddNotice(absl::StrCat("port ", pair.port, " there: ", LocalUrl(pair)));
  }
  for (const std::string& notice : news.notices) view_->AddNotice(notice);
  if (!news.done) return;
  // The run goes on without them.
  forward_over_ = true;
  view_->AddNotice(absl::StrCat("its ports are not forwarded: ", news.result.message()),
                   Tone::kWarning);
}

void Show::EndForward() {
  if (forward_ != nullptr && !forward_->Cancel(kPatience)) stuck_ = true;
}

bool Show::Finished() {
  if (session_ == nullptr) return true;
  return news_.done;
}

absl::StatusOr<int> Show::Run() {
  RETURN_IF_ERROR(Begin());
  while (true) {
    OnNews();
    RETURN_IF_ERROR(BeginPull());
    OnPullNews();
    RETURN_IF_ERROR(BeginForward());
    OnForwardNews();
    const bool finished = Finished();
    const absl::StatusOr<bool> more = Draw();
    if (absl::IsUnavailable(more.status())) {
      reader_gone_ = true;
      break;
    }
    RETURN_IF_ERROR(more.status());
    ASSIGN_OR_RETURN(const bool detach, OnSignals());
    if (detach) break;
    if (*more) continue;
    if (finished) break;
    WaitForNews({session_->wake_fd(), screen_->wake_fd()}, *signals_, kRedrawEvery);
  }
  return Conclude();
}

void Show::Leave() {
  view_.reset();  // what is said from here on must be seen
  screen_->Close();
  EndForward();
  if (pull_ != nullptr && !pull_->Cancel(kPatience)) stuck_ = true;
  if (session_ != nullptr && !session_->Finish(kPatience)) stuck_ = true;
}

absl::StatusOr<int> Show::Conclude() {
  const absl::Status shown = reader_gone_ ? absl::OkStatus() : view_->Finish();
  const absl::Status result = news_.done ? news_.result : absl::CancelledError("detached");
  view_.reset();
  screen_->Close();
  const bool had_session = session_ != nullptr;
  stuck_ = had_session && !session_->Finish(kPatience);
  if (had_session) start_answer_ = session_->start_answer();
  EndForward();
  const bool session_stuck = stuck_;
  if (!stuck_) session_.reset();
  if (had_session) {
    // The session may have stored news of the run.
    ASSIGN_OR_RETURN(const RunRow stored, store_.Get(row_.run_id));
    row_.node_id = stored.node_id;
    row_.heard_ms = stored.heard_ms;
    row_.accepted_ms = std::max(row_.accepted_ms, stored.accepted_ms);
  }
  const absl::Status recorded = result.ok() && (news_.by_other || news_.no_room)
                                    ? RecordNodesEnd(context_, store_, row_)
                                    : RecordOutcome(context_, store_, row_, result);
  AwaitPull();
  stuck_ = stuck_ || session_stuck;
  RETURN_IF_ERROR(recorded);
  RETURN_IF_ERROR(shown);
  if (row_.end.has_value()) {
    if (!options_.plain) PrintEnd();
    return row_.end->exit_code;
  }
  const absl::Status why = result.ok() ? NoEndError(row_) : result;
  if (!news_.accepted && row_.accepted_ms == 0) return AbandonLaunch(why);
  if (options_.until_running && result.ok()) return kExitOk;
  if (detached_ || reader_gone_) return Detach();
  return ExplainLinkError(why, row_.target);
}

absl::StatusOr<int> Show::Detach() {
  if (options_.plain) return ended_by_signal_ != 0 ? 128 + ended_by_signal_ : kExitOk;
  context_.Warn(absl::StrCat(
      "detached; ", row_.name,
      news_.queue.has_value() ? " goes on waiting on " : " goes on running on ", row_.target.name));
  const bool rented = row_.target.provider != "local" && row_.target.provider != "ssh";
  // After launch -d the launch itself prints these.
  if (!options_.until_running) {
    context_.Hint(absl::StrCat(
        "gpuctl attach ", row_.name, " returns to it, gpuctl stop ", row_.name, " ends it",
        rented ? absl::StrCat(", gpuctl down ", row_.name, " ends its machine's bill too") : ""));
    if (context_.json()) {
      context_.PrintJson(RunToJson(row_, DeriveStatus(row_, mirror_->lifecycle())));
    }
  }
  RETURN_IF_ERROR(OfferStop());
  return ended_by_signal_ != 0 ? 128 + ended_by_signal_ : kExitOk;
}

// Returns what an abandoned launch leaves on the node.
std::string Show::NothingStarted() const {
  const bool given_back = options_.start.has_value() && options_.start->on_failure != nullptr;
  if (!*sends_ || given_back) return "nothing was started";
  return "nothing was started; what was sent is kept there, and the same gpuctl launch sends only "
         "the rest";
}

// Asks whether the job shall stop when a second Ctrl-C comes right after the first one. Nobody is
// asked without a terminal.
absl::Status Show::OfferStop() {
  if (interrupted_at_ == absl::InfiniteDuration() || ended_by_signal_ != 0 ||
      !context_.terminal.stderr_tty || !context_.CanAsk()) {
    return absl::OkStatus();
  }
  const absl::Duration left = interrupted_at_ + kSecondInterrupt - context_.clock.SinceBoot();
  if (!interrupted_again_ && left > absl::ZeroDuration()) WaitForNews({}, *signals_, left);
  for (const int signal : signals_->Take()) interrupted_again_ |= signal == SIGINT;
  if (!interrupted_again_) return absl::OkStatus();
  signals_.reset();  // a Ctrl-C ends the question, and the call below
  // What was typed before the question answers nothing.
  tcflush(STDIN_FILENO, TCIFLUSH);
  ASSIGN_OR_RETURN(const bool stop,
                   context_.AskYesNo("Stop the run?", absl::StrCat(row_.name, " runs on"),
                                     "there is nobody to ask", /*hint=*/""));
  if (!stop) return absl::OkStatus();
  ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context_, *links_, row_.target));
  RETURN_IF_ERROR(calls.StopJob(row_.job_id, "user", row_.node_id).status());
  context_.Say(absl::StrCat(row_.name, " was told to stop and may save first"));
  context_.Hint(absl::StrCat("gpuctl wait ", row_.name, " returns when it has ended"));
  return absl::OkStatus();
}

// Asks the node to stop the job, which it may have accepted unknown to this process: nothing must
// run that nobody sees.
absl::StatusOr<int> Show::AbandonLaunch(const absl::Status& why) {
  const absl::Status cause =
      detached_
          ? WithExitCode(absl::CancelledError(absl::StrCat("launch ", row_.name, ": interrupted")),
                         ended_by_signal_ != 0 ? static_cast<ExitCode>(128 + ended_by_signal_)
                                               : kExitInterrupted)
          : ExplainRefusedJob(why, row_.target);
  RunEnd end;
  end.exit_code = ExitCodeOf(cause);
  end.source = EndSource::kGpuctl;
  end.reason = std::string(cause.message());
  end.ended_ms = context_.NowMs();
  if (!news_.ever_linked && start_answer_ == StartAnswer::kNotAsked && !detached_ &&
      absl::IsUnavailable(why) && row_.target.provider == "ssh") {
    // A host that was never reached, perhaps misspelled, has nothing of the run: nor has the list.
    RETURN_IF_ERROR(store_.Delete(row_.run_id));
    if (!stuck_) (void)RemoveTree(mirror_dir_);
    return ExplainLinkError(cause, row_.target);
  }
  if (!news_.ever_linked && start_answer_ != StartAnswer::kUnknown) {
    RETURN_IF_ERROR(store_.SetEnd(row_.run_id, end));
    if (detached_) return WithHint(cause, NothingStarted());
    const bool refused = start_answer_ == StartAnswer::kRefused && !absl::IsUnavailable(cause);
    return refused ? cause : ExplainLinkError(cause, row_.target);
  }
  stop_call_ = std::make_unique<StopCall>(context_, *links_, row_);
  const absl::Status stopped =
      stop_call_->Run(*signals_, detached_ ? kLeavePatience : kAskPatience);
  stuck_ = stuck_ || stop_call_->stuck();
  if (stopped.ok() || absl::IsNotFound(stopped)) {
    RETURN_IF_ERROR(store_.SetEnd(row_.run_id, end));
    return WithHint(cause, stopped.ok()
                               ? std::string("the job had just been accepted and was told to stop")
                               : NothingStarted());
  }
  const std::string may_run =
      absl::StrCat("it may have started",
                   IsPlainWord(row_.target.name) ? absl::StrCat(" on ", row_.target.name) : "",
                   ": gpuctl stop ", row_.name, " makes sure that it ends");
  if (detached_ || !absl::IsUnavailable(cause)) return WithHint(cause, may_run);
  // The hint is how to reach the node.
  context_.Warn(may_run);
  return WithHint(ExplainLinkError(cause, row_.target), may_run);
}

void Show::PrintEnd() {
  const RunStatus status = DeriveStatus(row_, mirror_->lifecycle());
  if (context_.json()) {
    context_.PrintJson(RunToJson(row_, status));
    return;
  }
  const bool failed = row_.end->exit_code != 0;
  const std::vector<PlotPoint>& losses = mirror_->progress().losses();
  // After a failure the last lines of the output are what matters, and the screen may be low.
  if (!failed && context_.terminal.animation && !context_.quiet && losses.size() > 2) {
    const TerminalSize size = GetTerminalSize(STDERR_FILENO);
    const std::vector<std::string> plot =
        Plot({{"loss", losses}}, "steps", std::min(size.columns - 1, 79),
             std::clamp(size.rows / 2, 6, 12), !context_.terminal.utf8);
    for (const std::string& row : plot) context_.Note(row);
  }
  std::string line = absl::StrCat(row_.name, " ", DescribeEnd(*row_.end));
  const bool ran = row_.end->job_code >= 0;
  const bool in_setup = status.setup.has_value() && status.setup->failed;
  if (ran && status.started_ms > 0 && row_.end->ended_ms > status.started_ms) {
    absl::StrAppend(&line, " after ",
                    HumanDuration(absl::Milliseconds(row_.end->ended_ms - status.started_ms)));
  }
  context_.Say(line, failed ? Tone::kWarning : Tone::kPlain);
  if (const std::string hint = CannotRunHint(row_.end->exit_code, row_.end->reason);
      !ran && !in_setup && !hint.empty()) {
    context_.Hint(hint);
  }
  if (const std::string hint = HintOfOutput(*mirror_); row_.end->exit_code != 0 && !hint.empty()) {
    context_.Hint(hint);
  }
  if (mirror_->progress().checkpoint_step() >= 0 && !options_.pull.has_value()) {
    context_.Hint(absl::StrCat("gpuctl pull ", row_.name, " brings its newest checkpoint home"));
  } else if (!NamesNoResults() && ran && !options_.pull.has_value() &&
             context_.terminal.animation) {
    context_.Hint(
        absl::StrCat("gpuctl pull ", row_.name, " brings the results that it named home"));
  } else if (!failed && !row_.workdir.empty() && !options_.pull.has_value() &&
             context_.terminal.animation) {
    context_.Hint(absl::StrCat("files that it made stay on ", row_.target.name, ": gpuctl pull ",
                               row_.name,
                               " lists them; artifacts: in the run file names what "
                               "comes home"));
  }
}

bool Show::NamesNoResults() const {
  return row_.checkpoint_patterns.empty() && row_.artifact_patterns.empty();
}

}  // namespace

absl::StatusOr<int> ShowRun(CommandContext& context, RunStore& store, RunRow row,
                            LinkFactory* links, ShowRunOptions options) {
  const std::string run_id = row.run_id;
  if (options.start.has_value()) ExpectEnd(context, run_id);
  Show show(context, store, row, links, options);
  absl::StatusOr<int> code = show.Run();
  if (!code.ok() && !show.stuck()) show.Leave();
  if (!code.ok() && options.start.has_value() && options.start->on_failure) {
    options.start->on_failure([&show] { return show.Interrupted(); });
  }
  if (show.stuck()) ExitAtOnce(context, code);
  if (!options.plain) {
    Holdings holdings(context);
    TellEnd(context, holdings, store, run_id);
  }
  return code;
}

}  // namespace gpuctl
