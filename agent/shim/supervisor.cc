#include "agent/shim/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "agent/base/held_root.h"
#include "agent/base/platform.h"
#include "agent/base/processes.h"
#include "agent/base/say.h"
#include "agent/envs/packages.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/job/job_layout.h"
#include "common/job/lifecycle.h"
#include "common/process/process.h"
#include "common/release/release_route.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kTerminateTime = absl::Seconds(5);
constexpr absl::Duration kGuardInterval = absl::Seconds(5);
constexpr absl::Duration kKillInterval = absl::Milliseconds(100);
// The time that the launcher of several processes has after they were killed.
constexpr absl::Duration kLauncherTime = absl::Seconds(2);
constexpr absl::Duration kWriteRetry = absl::Milliseconds(500);
// The time after which a job's Python has loaded what it needs.
constexpr absl::Duration kListPackagesAfter = absl::Seconds(60);
// What ends within that time after the command is not worth a line.
constexpr absl::Duration kTellLingeringAfter = absl::Seconds(1);
// The longest poll. poll's time stops while the machine is suspended.
constexpr absl::Duration kLongestWait = absl::Seconds(10);
// The largest number of sync tries. A stream whose fdatasync keeps failing has lost bytes already,
// so `exited` does not wait longer.
constexpr int kMostSyncTries = 5;

// The flags tell what happened. The pipe only ends a running poll; if a byte is lost, the next poll
// sees the flag.
int signal_pipe[2] = {-1, -1};
volatile sig_atomic_t child_ended = 0;
volatile sig_atomic_t told_to_end = 0;

void OnSignal(int number) {
  const int saved = errno;
  (number == SIGCHLD ? child_ended : told_to_end) = 1;
  [[maybe_unused]] const ssize_t written = write(signal_pipe[1], "s", 1);
  errno = saved;
}

// Returns the reason in the file that tells a job to end; "" when there is none.
std::string StopReason(const std::string& path) {
  const absl::StatusOr<std::string> reason = ReadFileToString(path, 4096);
  return reason.ok() ? std::string(absl::StripAsciiWhitespace(*reason)) : "";
}

}  // namespace

absl::Status Supervisor::CatchSignals() {
  if (pipe(signal_pipe) != 0) return ErrnoStatus(errno, "make the signal pipe");
  for (const int fd : signal_pipe) {
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || fcntl(fd, F_SETFL, O_NONBLOCK) != 0) {
      return ErrnoStatus(errno, "make the signal pipe");
    }
  }
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART | SA_NOCLDSTOP;
  for (const int number : {SIGCHLD, SIGTERM, SIGINT}) sigaction(number, &action, nullptr);
  for (const int number : {SIGPIPE, SIGHUP, SIGXFSZ, SIGTSTP, SIGTTIN, SIGTTOU}) {
    signal(number, SIG_IGN);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  return absl::OkStatus();
}

Supervisor::Supervisor(const gpuctl::v1::JobSpec& spec, int attempt, AttemptFiles files,
                       Child child, bool adopts_orphans, Clock& clock)
    : spec_(spec),
      attempt_(attempt),
      clock_(clock),
      journal_(std::move(files.journal)),
      output_(child.TakeOutput(), std::move(files.output), clock),
      metrics_(std::move(files.metrics_fifo), std::move(files.metrics), attempt, clock),
      control_(std::move(files.control_fifo)),
      stop_file_(std::move(files.stop_file)),
      gpus_(std::move(files.gpus)),
      goes_on_(std::move(files.goes_on)),
      use_environment_(std::move(files.use_environment)),
      child_(std::move(child)),
      news_(child_.TakeNews()),
      adopts_orphans_(adopts_orphans),
      orphans_(spec.job_id(), clock),
      setting_up_(!spec.setup().empty()) {}

absl::Status Supervisor::Start() {
  LifecycleEvent started = NewEvent(LifecycleEvent::Type::kStarted);
  started.pid = child_.pid();
  started.start_time_ticks = IdentityOf(child_.pid()).start_time_ticks;
  started.boot_id = BootId();
  started.gpus = gpus_;
  started.processes = spec_.processes();
  started.detail = goes_on_;
  // Together, so that no reader takes the job itself for begun.
  const absl::Status status =
      setting_up_ ? journal_.AppendTogether(started, NewEvent(LifecycleEvent::Type::kSetupStarted))
                  : journal_.Append(started);
  if (status.ok()) {
    if (absl::Status released = child_.Release(); !released.ok()) {
      start_error_ = std::string(released.message());
    }
    return absl::OkStatus();
  }
  const bool visible = journal_.LastIsVisible();
  child_.Abandon();
  if (!visible) {
    while (waitpid(child_.pid(), &wait_status_, 0) < 0 && errno == EINTR) {
    }
    journal_.Drop();
    return Annotate(status, "record the start");
  }
  // Readers may have seen the line, so the attempt's end must be recorded, too.
  start_error_ = absl::StrCat("record the start: ", status.message());
  return absl::OkStatus();
}

void Supervisor::Run(const std::function<std::optional<ControlCommand>()>& tend_guard) {
  next_guard_ = clock_.SinceBoot() + kGuardInterval;
  list_packages_at_ = clock_.SinceBoot() + kListPackagesAfter;
  while (state_ != State::kDone) {
    const std::array<pollfd, kDescriptors> ready = Wait();
    // Output comes before metrics, so that a metric line's offset is after the output printed
    // before it.
    if (ready[kOutput].revents != 0) output_.Pump();
    if (ready[kMetrics].revents != 0) metrics_.Pump(output_.size());
    TellGaps(false);
    CutOutput();
    if (ready[kNews].revents != 0) ReadNews();
    if (ready[kControl].revents != 0) ReadControl();
    ReadSignals(ready[kSignals].revents != 0);
    RetryWrites();
    if (clock_.SinceBoot() >= look_again_) Reap();
    if (clock_.SinceBoot() >= list_packages_at_) ListPackages();
    if (clock_.SinceBoot() >= tell_lingering_at_) TellLingering();
    if (clock_.SinceBoot() >= next_guard_) {
      next_guard_ = clock_.SinceBoot() + kGuardInterval;
      if (auto command = tend_guard ? tend_guard() : std::nullopt) Obey(*std::move(command));
    }
    if (clock_.SinceBoot() >= deadline_) {
      deadline_ = absl::InfiniteDuration();
      Handle(Input::kDeadline);
    }
  }
  journal_.EndReservation();
}

std::array<pollfd, Supervisor::kDescriptors> Supervisor::Wait() {
  std::array<pollfd, kDescriptors> fds;
  fds[kOutput] = {output_.fd(), POLLIN, 0};  // -1 after its end: poll ignores it
  fds[kMetrics] = {metrics_.fd(), POLLIN, 0};
  fds[kControl] = {control_.fd(), POLLIN, 0};
  fds[kSignals] = {signal_pipe[0], POLLIN, 0};
  fds[kNews] = {news_.valid() ? news_.get() : -1, POLLIN, 0};
  if (poll(fds.data(), fds.size(), TimeoutMs()) < 0) {
    for (pollfd& fd : fds) fd.revents = 0;
  }
  return fds;
}

int Supervisor::TimeoutMs() const {
  const absl::Duration next =
      std::min({deadline_, retry_at_, next_guard_, look_again_, tell_lingering_at_});
  const absl::Duration wait =
      std::clamp(next - clock_.SinceBoot(), absl::ZeroDuration(), kLongestWait);
  return static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(wait, absl::Milliseconds(1))));
}

void Supervisor::ReadSignals(bool pipe_readable) {
  char wakes[256];
  while (pipe_readable && read(signal_pipe[0], wakes, sizeof(wakes)) > 0) {
  }
  if (told_to_end != 0) {
    told_to_end = 0;
    if (stop_reason_.empty()) stop_reason_ = kShutdownReason;
    Handle(Input::kStop);
  }
  if (child_ended != 0) {
    child_ended = 0;
    Reap();
  }
}

void Supervisor::ReadControl() {
  for (ControlCommand& command : control_.Read()) Obey(std::move(command));
}

void Supervisor::Obey(ControlCommand command) {
  if (command.type == ControlCommand::Type::kSignal) {
    pending_signal_ = command.signal;
    return Handle(Input::kSignal);
  }
  if (stop_reason_.empty()) stop_reason_ = std::move(command.reason);
  Handle(command.type == ControlCommand::Type::kStopNow ? Input::kStopNow : Input::kStop);
}

// Reads what the child tells before it executes the job.
void Supervisor::ReadNews() {
  char buffer[4096];
  while (news_.valid()) {
    const ssize_t got = read(news_.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return news_.reset();
    news_line_.append(buffer, static_cast<size_t>(got));
    size_t end = 0;
    while ((end = news_line_.find('\n')) != std::string::npos) {
      const std::string line = news_line_.substr(0, end);
      news_line_.erase(0, end + 1);
      TakeNews(line);
    }
  }
}

void Supervisor::TakeNews(absl::string_view line) {
  absl::StatusOr<LifecycleEvent> told = ParseLifecycleEvent(line);
  if (!told.ok()) return Say(told.status().message());
  if (setting_up_) {
    // The line stands behind all that was printed before it, and the job waits for Continue.
    Drain();
    TellGaps(false);
  }
  if (told->type == LifecycleEvent::Type::kPackages) {
    list_packages_at_ = absl::InfiniteDuration();
  }
  const LifecycleEvent now = NewEvent(told->type);
  told->attempt = now.attempt;
  told->output_size = now.output_size;
  told->metrics_size = now.metrics_size;
  told->time_ms = now.time_ms;
  Append(*told);
  if (told->type != LifecycleEvent::Type::kSetupEnded) return;
  setup_error_ = told->error;
  if (told->exit_code != 0) return;
  setting_up_ = false;
  if (list_packages_at_ < absl::InfiniteDuration()) {
    list_packages_at_ = clock_.SinceBoot() + kListPackagesAfter;
  }
  if (use_environment_) use_environment_(told->environment);
  child_.Continue();
}

void Supervisor::ListPackages() {
  if (setting_up_ || news_.valid()) return;  // still at its setup
  list_packages_at_ = absl::InfiniteDuration();
  if (state_ != State::kRunning) return;
  std::vector<pid_t> pids;
  for (const ProcessId& process : Tree().found) pids.push_back(process.pid);
  news_ = ListPackagesApart(pids, attempt_);
}

void Supervisor::Reap() {
  while (true) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid == child_.pid()) {
      wait_status_ = status;
      child_reaped_ = true;
      Handle(Input::kChildEnded);
    }
    if (pid < 0) LookForOrphans();
    if (pid <= 0) return;
  }
}

// Called without children: the tree is gone, or what is left of it belongs to init.
void Supervisor::LookForOrphans() {
  const auto again = adopts_orphans_ ? std::nullopt : orphans_.Look();
  look_again_ = clock_.SinceBoot() + again.value_or(absl::InfiniteDuration());
  if (!again.has_value()) Handle(Input::kTreeGone);
}

void Supervisor::Handle(Input input) {
  const Transition transition = Lookup(state_, input);
  state_ = transition.next;
  Do(transition.action);
}

void Supervisor::Do(Action action) {
  switch (action) {
    case Action::kNone:
      return;
    case Action::kStop:
    case Action::kStopNow: {
      LifecycleEvent stopping = NewEvent(LifecycleEvent::Type::kStopping);
      stopping.reason = stop_reason_;
      Append(stopping);
      if (action == Action::kStopNow) return Do(Action::kKill);
      SignalTree(SIGTERM);
      return SetDeadline(Grace());
    }
    case Action::kPassOn:
      return SignalTree(pending_signal_);
    case Action::kLinger:
      tell_lingering_at_ = clock_.SinceBoot() + kTellLingeringAfter;
      return SetDeadline(Grace());
    case Action::kTerminate:
      SignalTree(SIGTERM);
      return SetDeadline(kTerminateTime);
    case Action::kKill:
      if (launcher_until_ == absl::ZeroDuration() && spec_.processes() != 0 && !setting_up_ &&
          !child_reaped_) {
        launcher_until_ = clock_.SinceBoot() + kLauncherTime;
        // So that it knows who ends the others.
        SendSignal(IdentityOf(child_.pid()), SIGTERM);
      }
      SignalTree(SIGKILL);
      return SetDeadline(kKillInterval);
    case Action::kRecord:
      return RecordEnd();
  }
}

ProcessSearch Supervisor::Tree() const {
  ProcessSearch marked = SearchJobProcesses(spec_.job_id());
  ProcessSearch tree{Descendants(getpid()), marked.unsure && !adopts_orphans_};
  for (const ProcessId& process : marked.found) {
    if (!absl::c_linear_search(tree.found, process)) tree.found.push_back(process);
  }
  return tree;
}

void Supervisor::SignalTree(int signal) {
  std::vector<ProcessId> tree;
  if (signal == SIGTERM) {
    tree = TerminateOnce([this] { return Tree(); });
  } else {
    tree = Tree().found;
    // The launcher of several processes first tells what it has of their output.
    const bool spared = signal == SIGKILL && clock_.SinceBoot() < launcher_until_;
    for (const ProcessId& process : tree) {
      if (!spared || process.pid != child_.pid()) SendSignal(process, signal);
    }
  }
  // Where processes cannot be listed, the group is used.
  if (tree.empty() && !child_reaped_) kill(-child_.pid(), signal);
}

void Supervisor::SetDeadline(absl::Duration from_now) { deadline_ = clock_.SinceBoot() + from_now; }

void Supervisor::TellLingering() {
  tell_lingering_at_ = absl::InfiniteDuration();
  if (state_ != State::kLingering || setting_up_) return;
  LifecycleEvent lingering = NewEvent(LifecycleEvent::Type::kLingering);
  NoteHowItEnded(lingering);
  const absl::Duration left = deadline_ - clock_.SinceBoot();
  lingering.not_before_ms = lingering.time_ms + absl::ToInt64Milliseconds(left);
  Append(lingering);
}

absl::Duration Supervisor::Grace() const { return GraceOf(spec_); }

LifecycleEvent Supervisor::NewEvent(LifecycleEvent::Type type) const {
  LifecycleEvent event;
  event.type = type;
  event.attempt = attempt_;
  event.output_size = output_.size();
  event.metrics_size = metrics_.size();
  event.time_ms = absl::ToUnixMillis(clock_.Now());
  return event;
}

void Supervisor::NoteHowItEnded(LifecycleEvent& event) const {
  if (WIFSIGNALED(wait_status_)) {
    event.signal = WTERMSIG(wait_status_);
  } else {
    event.exit_code = WEXITSTATUS(wait_status_);
  }
}

void Supervisor::Append(const LifecycleEvent& event) { KeepForLater(journal_.Append(event)); }

// Takes the result of an Append. The journal has the line when it could not be written.
void Supervisor::KeepForLater(const absl::Status& status) {
  if (status.ok()) return;
  Say(absl::StrCat("lifecycle, kept for later: ", status.message()));
  retry_at_ = clock_.SinceBoot() + kWriteRetry;
}

void Supervisor::RetryWrites() {
  const bool trouble = journal_.pending() || metrics_.pending();
  if (!trouble) {
    retry_at_ = absl::InfiniteDuration();
    return;
  }
  const absl::Duration now = clock_.SinceBoot();
  if (retry_at_ == absl::InfiniteDuration()) retry_at_ = now + kWriteRetry;
  if (now < retry_at_) return;
  retry_at_ = now + kWriteRetry;
  journal_.Flush().IgnoreError();
  metrics_.Flush().IgnoreError();
}

void Supervisor::TellGaps(bool at_end) {
  if (!output_.trouble().ok() && !told_trouble_) Say(output_.trouble().message());
  told_trouble_ = !output_.trouble().ok();
  // While lines wait for the disk, gaps wait, too, and become one gap.
  if (journal_.pending() && !at_end) return;
  const std::optional<Gap> gap = output_.TakeGap(at_end);
  // There may be many overlong metric lines. They are reported with the next gap, or at the end.
  if (!gap.has_value() && !(at_end && metrics_.dropped_lines() > 0)) return;
  LifecycleEvent dropped = NewEvent(LifecycleEvent::Type::kDropped);
  if (gap.has_value()) {
    dropped.output_size = gap->offset;
    dropped.dropped_bytes = gap->bytes;
  }
  dropped.dropped_metric_lines = metrics_.TakeDroppedLines();
  Append(dropped);
}

void Supervisor::CutOutput() {
  // One segment less, because CutTo keeps up to one segment more: at most the limit stays.
  const int64_t keep = OutputLimit(spec_) - OutputShape(spec_).segment_bytes;
  if (clock_.SinceBoot() < next_cut_) return;
  const absl::StatusOr<int64_t> first =
      output_.stream().CutTo(std::max<int64_t>(keep, 0), [this](int64_t first_offset) {
        LifecycleEvent cut = NewEvent(LifecycleEvent::Type::kCut);
        cut.first_offset = first_offset;
        return journal_.Append(cut);
      });
  if (!first.ok()) {
    Say(absl::StrCat("cut the output: ", first.status().message()));
    next_cut_ = clock_.SinceBoot() + kWriteRetry;
  }
}

void Supervisor::Drain() {
  output_.PumpAll();
  metrics_.PumpAll(output_.size());
  CutOutput();
}

bool Supervisor::SyncStreams() {
  absl::Status status = output_.stream().Sync();
  status.Update(metrics_.stream().Sync());
  if (status.ok() || ++sync_tries_ >= kMostSyncTries) return true;
  Say(absl::StrCat("try again: ", status.message()));
  return false;
}

void Supervisor::RecordEnd() {
  if (!end_queued_) {
    // All writers are gone, so nothing more will come into the pipes.
    Drain();
    if (metrics_.pending() && sync_tries_ >= kMostSyncTries) metrics_.DropPending();
    if (metrics_.pending() || !SyncStreams()) {
      sync_tries_ += metrics_.pending() ? 1 : 0;
      return SetDeadline(kKillInterval);
    }
    TellGaps(true);
    ReadNews();
    // A late stop still forbids a retry.
    ReadControl();
    if (stop_reason_.empty()) stop_reason_ = StopReason(stop_file_);
    LifecycleEvent exited = NewEvent(LifecycleEvent::Type::kExited);
    NoteHowItEnded(exited);
    const ChildWord word = child_.TakeLastWord();
    exited.error = start_error_.empty() ? word.exec_error : start_error_;
    exited.detail = word.detail;
    if (setting_up_) exited.phase = kSetupPhase;
    if (setting_up_ && exited.error.empty()) exited.error = setup_error_;
    exited.reason = stop_reason_;
    end_queued_ = true;
    // Slurm starts the allocation again, and the job's next attempt there. Some clusters signal us,
    // too.
    const RootPaths root(DirName(DirName(DirName(stop_file_))));
    const bool taken = exited.reason == kAllocationEndsReason || exited.reason == kShutdownReason;
    const bool goes_on =
        taken && WantsRestart(spec_.retry(), attempt_) && GoesOnAfterwards(root, spec_.job_id());
    if (goes_on || WantsRetry(spec_.retry(), exited)) {
      LifecycleEvent retry = NewEvent(LifecycleEvent::Type::kRetry);
      retry.attempt = attempt_ + 1;
      retry.not_before_ms = retry.time_ms + RetryDelayMs(spec_.retry(), retry.attempt);
      // A reader between the two would take the attempt's end for the job's.
      KeepForLater(journal_.AppendTogether(exited, retry));
    } else {
      Append(exited);
    }
  }
  if (journal_.Flush().ok()) return Handle(Input::kRecorded);
  SetDeadline(kWriteRetry);
}

}  // namespace gpuctl
