// The shim's poll loop: one attempt of one job, from its waiting child to the line `exited`.
#ifndef GPUCTL_AGENT_SHIM_SUPERVISOR_H_
#define GPUCTL_AGENT_SHIM_SUPERVISOR_H_

#include <poll.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agent/base/processes.h"
#include "agent/capture/metrics.h"
#include "agent/capture/output.h"
#include "agent/shim/child.h"
#include "agent/shim/control.h"
#include "agent/shim/journal.h"
#include "agent/shim/table.h"
#include "common/base/clock.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

// The open files of an attempt.
struct AttemptFiles {
  Journal journal;
  StreamWriter output;
  StreamWriter metrics;
  UniqueFd metrics_fifo;
  UniqueFd control_fifo;
  std::string stop_file;  // JobPaths::stop
  // The GPUs that are the attempt's own; absent: it sees all.
  std::optional<std::vector<std::string>> gpus = std::nullopt;
  // The detail of its `started` line.
  std::string goes_on = {};
  // Called with the environment that the attempt uses, before the job begins.
  std::function<void(const std::string& environment)> use_environment = nullptr;
};

// Runs one attempt. Single-threaded; a process has only one, because signals belong to the process.
// Only kActions decides what happens; the members below carry it out.
class Supervisor {
 public:
  // `adopts_orphans`: this process is a subreaper, so that its last child is the job's last
  // process. Else the job's processes are looked for by its id (OrphanSearch) once the children are
  // gone.
  Supervisor(const gpuctl::v1::JobSpec& spec, int attempt, AttemptFiles files, Child child,
             bool adopts_orphans, Clock& clock);

  // Catches SIGCHLD, SIGTERM and SIGINT; the last two stop the job, because the node shuts down.
  // Call it before the fork of the child, so that no end is missed.
  static absl::Status CatchSignals();

  // Records `started` and releases the child. After an error the attempt did not happen: the child
  // is gone, unstarted, and lifecycle has no line about it.
  absl::Status Start();

  // Runs until the attempt is over and recorded. Calls `tend_guard`, unless it is empty, every few
  // seconds: perhaps only this shim is left to notice that the node's guard has died. Does what it
  // returns.
  void Run(const std::function<std::optional<ControlCommand>()>& tend_guard = nullptr);

 private:
  enum Descriptor { kOutput, kMetrics, kControl, kSignals, kNews, kDescriptors };

  // Waiting.
  std::array<pollfd, kDescriptors> Wait();
  int TimeoutMs() const;
  void ReadSignals(bool pipe_readable);
  void ReadControl();
  void ReadNews();
  void TakeNews(absl::string_view line);
  // Lists the packages of the job's Python, in a process that tells them as news.
  void ListPackages();
  void Reap();
  void LookForOrphans();

  // Decisions and actions.
  void Handle(Input input);
  void Obey(ControlCommand command);
  void Do(Action action);
  // Returns the living processes of the job.
  ProcessSearch Tree() const;
  void SignalTree(int signal);
  void SetDeadline(absl::Duration from_now);
  // Records how the command has ended, and until when what it left running may finish.
  void TellLingering();

  // Recording.
  void Drain();
  void TellGaps(bool at_end);
  void CutOutput();
  bool SyncStreams();
  void RecordEnd();
  LifecycleEvent NewEvent(LifecycleEvent::Type type) const;
  // Puts the exit code or the signal of the direct child into `event`.
  void NoteHowItEnded(LifecycleEvent& event) const;
  void Append(const LifecycleEvent& event);
  void KeepForLater(const absl::Status& status);
  void RetryWrites();

  absl::Duration Grace() const;

  const gpuctl::v1::JobSpec& spec_;
  const int attempt_;
  Clock& clock_;
  Journal journal_;
  OutputDrain output_;
  MetricsDrain metrics_;
  ControlReader control_;
  const std::string stop_file_;
  const std::optional<std::vector<std::string>> gpus_;
  const std::string goes_on_;
  const std::function<void(const std::string& environment)> use_environment_;
  Child child_;
  UniqueFd news_;
  std::string news_line_;  // its beginning
  const bool adopts_orphans_;
  OrphanSearch orphans_;

  State state_ = State::kRunning;
  absl::Duration deadline_ = absl::InfiniteDuration();  // of the state, in boot time
  absl::Duration retry_at_ = absl::InfiniteDuration();  // of writes that failed
  absl::Duration next_guard_ = absl::ZeroDuration();    // next call of tend_guard
  absl::Duration next_cut_ = absl::ZeroDuration();      // earliest next cut, after a failed one
  absl::Duration list_packages_at_ = absl::InfiniteDuration();
  absl::Duration tell_lingering_at_ = absl::InfiniteDuration();
  absl::Duration look_again_ = absl::InfiniteDuration();  // for processes that nobody adopted
  // The launcher of several processes is not killed before that time; zero: nothing was killed yet.
  absl::Duration launcher_until_ = absl::ZeroDuration();
  bool child_reaped_ = false;
  int wait_status_ = 0;
  int pending_signal_ = 0;
  std::string stop_reason_;
  std::string start_error_;
  bool setting_up_ = false;  // the job itself has not begun
  std::string setup_error_;
  int sync_tries_ = 0;
  bool end_queued_ = false;
  bool told_trouble_ = false;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SHIM_SUPERVISOR_H_
