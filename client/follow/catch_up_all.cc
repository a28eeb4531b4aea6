#include "client/follow/catch_up_all.h"

#include <algorithm>
#include <csignal>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/base/wake_pipe.h"
#include "client/follow/follow_session.h"
#include "common/base/status_macros.h"
#include "common/process/signal_pipe.h"

namespace gpuctl {
namespace {

// Number of links at the same time.
constexpr size_t kLinksAtOnce = 16;
// Time for the threads of all links to end.
constexpr absl::Duration kEndPatience = absl::Milliseconds(300);
// So many machines that could not be asked are named.
constexpr size_t kMostTold = 10;

}  // namespace

// One call of Run.
class CatchUpAll::Round {
 public:
  Round(CatchUpAll& all, absl::Duration limit)
      : all_(all), limit_(limit), results_(all.rows_.size()) {
    all_.works_.resize(all_.rows_.size());
  }

  // Begins as many as may be at work, and looks at those that are.
  void Step(absl::Duration left) {
    for (auto i = at_work_.begin(); i != at_work_.end();) {
      i = Settle(*i, all_.works_[*i]->Step()) ? at_work_.erase(i) : i + 1;
    }
    while (next_ < results_.size() && at_work_.size() < kLinksAtOnce) Begin(next_++, left);
  }
  bool done() const { return next_ == results_.size() && at_work_.empty(); }

  void Wait(const SignalPipe& signals, absl::Duration left) const {
    std::vector<int> fds;
    for (const size_t i : at_work_) {
      fds.push_back(all_.works_[i]->session()->wake_fd());
      left = std::min(left, all_.works_[i]->look_every());
    }
    WaitForNews(fds, signals, left);
  }

  // Returns the results, with what is known of those that are not up to date.
  std::vector<CaughtRun> Conclude() {
    for (const size_t i : at_work_) {
      CatchUpWork& work = *all_.works_[i];
      CaughtRun& result = results_[i];
      if (work.heard()) {
        result.caught = Caught::kUp;
      } else {
        result.error = work.link_error().ok() ? NoAnswer(i) : work.link_error();
      }
    }
    for (size_t i = next_; i < results_.size(); ++i) results_[i].error = NoAnswer(i);
    return std::move(results_);
  }

 private:
  absl::Status NoAnswer(size_t i) const {
    return absl::UnavailableError(
        absl::StrCat(all_.rows_[i].target.name, " did not answer within ", HumanDuration(limit_)));
  }

  void Begin(size_t i, absl::Duration left) {
    all_.works_[i] = std::make_unique<CatchUpWork>(all_.context_, all_.store_, all_.rows_[i]);
    absl::StatusOr<std::optional<Caught>> caught = all_.works_[i]->Prepare(left);
    if (caught.ok() && !caught->has_value()) {
      if (const absl::Status started = all_.works_[i]->Start(); !started.ok()) caught = started;
    }
    if (!Settle(i, caught)) at_work_.push_back(i);
  }

  // Stores a result. Returns false when there is none yet.
  bool Settle(size_t i, const absl::StatusOr<std::optional<Caught>>& caught) {
    CatchUpWork& work = *all_.works_[i];
    for (std::string& notice : work.TakeNotices()) {
      results_[i].notices.push_back(std::move(notice));
    }
    if (caught.ok() && !caught->has_value()) return false;
    results_[i].caught = caught.ok() ? **caught : Caught::kNot;
    results_[i].error = caught.ok() ? work.error() : caught.status();
    // Others may have the mirror from now on.
    if (work.session() != nullptr) (void)work.session()->Finish(absl::ZeroDuration());
    return true;
  }

  CatchUpAll& all_;
  const absl::Duration limit_;
  std::vector<CaughtRun> results_;
  std::vector<size_t> at_work_;
  size_t next_ = 0;
};

CatchUpAll::CatchUpAll(CommandContext& context, RunStore& store, std::vector<RunRow>& rows)
    : context_(context), store_(store), rows_(rows) {
  context_.tells_what_waits = rows_.size() < 2;
}

CatchUpAll::~CatchUpAll() = default;

absl::StatusOr<std::vector<CaughtRun>> CatchUpAll::Run(absl::Duration limit) {
  ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGINT, SIGTERM, SIGHUP, SIGTSTP}));
  const absl::Duration end = context_.clock.SinceBoot() + limit;
  Round round(*this, limit);
  bool interrupted = false, suspended = false;
  const auto take_signals = [&] {
    for (const int signal : signals.Take()) {
      (signal == SIGTSTP ? suspended : interrupted) = true;
    }
  };
  while (!interrupted && !suspended) {
    const absl::Duration left = end - context_.clock.SinceBoot();
    if (left <= absl::ZeroDuration()) break;
    round.Step(left);
    if (round.done()) break;
    round.Wait(signals, left);
    take_signals();
  }
  take_signals();  // those of the last step
  std::vector<CaughtRun> results = round.Conclude();
  const absl::Duration patience_end = context_.clock.SinceBoot() + kEndPatience;
  const auto finish = [this](absl::Duration patience) {
    bool finished = true;
    for (const std::unique_ptr<CatchUpWork>& work : works_) {
      if (work == nullptr || work->session() == nullptr) continue;
      finished = work->session()->Finish(patience) && finished;
    }
    return finished;
  };
  // All are told to end before one is waited for.
  while (!finish(absl::ZeroDuration()) && context_.clock.SinceBoot() < patience_end) {
    (void)finish(kEndPatience / 10);
  }
  stuck_ = !finish(absl::ZeroDuration());
  if (interrupted) return WithExitCode(absl::CancelledError("interrupted"), kExitInterrupted);
  if (suspended) raise(SIGSTOP);
  return results;
}

void TellOfCaughtRuns(CommandContext& context, const std::vector<RunRow>& rows,
                      const std::vector<CaughtRun>& results) {
  std::set<std::string> told;
  for (size_t i = 0; i < results.size(); ++i) {
    for (const std::string& notice : results[i].notices) context.Say(notice);
    const std::string why(results[i].error.message());
    if (results[i].caught != Caught::kNot || !told.insert(rows[i].target.name + why).second) {
      continue;
    }
    if (told.size() > kMostTold) continue;
    context.Warn(absl::StrCat(rows[i].name, ": ", why));
  }
  if (told.size() <= kMostTold) return;
  const size_t others = told.size() - kMostTold;
  context.Warn(absl::StrCat(others, others == 1 ? " other machine" : " other machines",
                            " could not be asked"));
}

}  // namespace gpuctl
