#include "agent/guard.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/base/held_root.h"
#include "agent/base/node_root.h"
#include "agent/base/platform.h"
#include "agent/base/processes.h"
#include "agent/bundle/bundle.h"
#include "agent/handover.h"
#include "agent/hold/dead_roots.h"
#include "agent/hold/jobs_end.h"
#include "agent/hold/keep_results.h"
#include "agent/idle_end.h"
#include "agent/limits/contact.h"
#include "agent/limits/limit_keeper.h"
#include "agent/limits/node_limits_store.h"
#include "agent/limits/self_release.h"
#include "agent/server_note.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/process/process.h"
#include "common/process/signal_pipe.h"
#include "common/release/release_route.h"

namespace gpuctl {
namespace {

constexpr int kTickMs = 1000;
constexpr int kEndTickMs = 100;
constexpr absl::Duration kLongestPause = absl::Seconds(10);
constexpr absl::Duration kServerDownWithin = absl::Seconds(5);
// rm -r may be at work for a while, and whatever is made then would be in its way.
constexpr absl::Duration kRemovalTakes = absl::Seconds(3);
constexpr int64_t kMostLimitBytes = 1 << 20;
constexpr absl::Duration kFirstReleasePause = absl::Seconds(2);
constexpr absl::Duration kReleaseEvery = absl::Minutes(1);
// What jobs have when the batch script is gone: the node may be somebody else's by now.
constexpr absl::Duration kGraceWithoutScript = absl::Seconds(5);
// The time in which who is here can take the ends of the jobs along.
constexpr absl::Duration kLastWordsWithin = absl::Seconds(2);
constexpr absl::Duration kRestGoneWithin = absl::Seconds(5);
constexpr absl::Duration kLockWithin = absl::Seconds(2);

// Returns a path of the running program that is valid although its file was removed, where the
// system has such a path.
std::string OwnProgram() {
  constexpr char kSelf[] = "/proc/self/exe";
  return PathExists(kSelf) ? kSelf : SelfPath("");
}

// The guard's loop and its state.
class Guard {
 public:
  Guard(GuardOptions options, RootPaths paths, UniqueFd lock, SignalPipe signals, Clock& clock)
      : options_(std::move(options)),
        paths_(std::move(paths)),
        lock_(std::move(lock)),
        clock_(clock),
        limits_(paths_, clock, BootId()),
        keeper_(paths_, clock),
        dead_roots_(paths_, clock),
        idle_(paths_, IdleEndAfter(), clock),
        signals_(std::move(signals)) {}

  absl::Status Run() {
    RETURN_IF_ERROR(OpenControl());
    OpenHandover();
    while (!leaving_) {
      if (options_.hold) {
        TendHold();
      } else {
        TendRoot();
      }
      if (!end_.has_value()) {
        if (!IsRemoved(lock_)) TendServer();
        limits_.Enforce();
        TendRelease();
        if (!options_.hold && idle_.IsDue()) LeaveIdle();
      }
      pollfd waited[2] = {{signals_.fd(), POLLIN, 0}, {control_.get(), POLLIN, 0}};
      poll(waited, 2, end_.has_value() ? kEndTickMs : kTickMs);
      HandleSignals();
      HandleCommands();
      Reap();
    }
    StopServer();
    if (end_.has_value()) {
      StopOtherServer();
      end_->KillRest(kRestGoneWithin);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status OpenControl() {
    if (mkfifo(paths_.guard_control.c_str(), 0600) != 0 && errno != EEXIST) {
      return ErrnoStatus(errno, absl::StrCat("make ", paths_.guard_control));
    }
    // It is open for writing, too, so that the last writer's close does not give an end of file.
    control_.reset(file_ops::Open(paths_.guard_control, O_RDWR | O_NONBLOCK));
    if (!control_.valid()) return ErrnoStatus(errno, absl::StrCat("open ", paths_.guard_control));
    return absl::OkStatus();
  }

  // Without it, jobs that wait for GPUs need their secrets from a client again after an upgrade.
  void OpenHandover() {
    if (options_.handover_fd >= 0) {
      fcntl(options_.handover_fd, F_SETFD, FD_CLOEXEC);
      handover_.reset(options_.handover_fd);
      return;
    }
    absl::StatusOr<UniqueFd> made = MakeHandover(paths_);
    if (made.ok()) {
      handover_ = *std::move(made);
    } else {
      Log(LogLevel::kWarning, absl::StrCat("guard: ", made.status().message()));
    }
  }

  // Ends the guard of a root that somebody removed: a client makes a new root, with a guard of its
  // own. But the limits of a rented machine outlive its root, because it bills on: they are put
  // back, and this guard becomes that of the new root.
  void TendRoot() {
    const absl::Duration now = clock_.SinceBoot();
    if (!IsRemoved(lock_)) {
      removed_at_ = absl::InfiniteDuration();
      if (!PathExists(paths_.limits)) return;
      for (const std::string& path : {paths_.limits, paths_.clock, paths_.claimed}) {
        absl::StatusOr<std::string> content = ReadFileToString(path, kMostLimitBytes);
        if (content.ok()) kept_[path] = *std::move(content);
      }
      return;
    }
    removed_at_ = std::min(removed_at_, now);
    if (now - removed_at_ < kRemovalTakes) return;
    Log(LogLevel::kWarning, "guard: its root was removed");
    if (!kept_.empty() && PrepareNodeRoot(paths_.root).ok()) {
      for (const auto& [path, content] : kept_) {
        if (!PathExists(path)) (void)WriteFileAtomic(path, content);
      }
    }
    StopServer();
    // Only its lock was removed, or there is a new root.
    if (IsDirectory(paths_.root)) {
      const std::string name = JoinPath(options_.bundle_dir, "gpuctl-agent");
      execl(OwnProgram().c_str(), name.c_str(), "guard", "--root", paths_.root.c_str(),
            static_cast<char*>(nullptr));
    }
    // With limits it goes on without its lock.
    leaving_ = kept_.empty();
  }

  // Returns why the allocation must end; "" while it goes on.
  std::string WhyItEnds(bool script_lives) {
    if (told_to_end_) return "it was told so";
    if (!script_lives) return "its batch script is gone";
    if (IsRemoved(lock_)) return "its root was removed";
    if (keeper_.replaced()) return "Slurm has started it again elsewhere";
    if (PathExists(JoinPath(paths_.root, kReleasedFile))) return "it was released";
    const bool late = clock_.SinceBoot() >= absl::Seconds(options_.claim_until_s);
    if (!late || PathExists(paths_.claimed)) return "";
    const absl::StatusOr<std::vector<std::string>> jobs = ListDirectory(paths_.jobs);
    return jobs.ok() && jobs->empty() ? "nobody has claimed it" : "";
  }

  // Begins the end of an allocation, and carries it out.
  void TendHold() {
    const bool script_lives = LivesBatchScript(paths_);
    if (!end_.has_value()) {
      const std::string why = WhyItEnds(script_lives);
      keeper_.Tend(JoinPath(options_.bundle_dir, "gpuctl-agent"));
      if (why.empty()) {
        RemoveDeadRoot();
        return;
      }
      Log(LogLevel::kInfo, absl::StrCat("hold: the allocation ends, ", why));
      // The log goes with the root. This goes into the batch script's output.
      fprintf(stderr, "gpuctl: the allocation ends, %s\n", why.c_str());
      end_.emplace(paths_, HoldGrace(), clock_);
    }
    if (!script_lives) end_->Hurry(kGraceWithoutScript);
    if (!end_->Proceed()) return;
    const absl::Duration now = clock_.SinceBoot();
    ended_at_ = std::min(ended_at_, now);
    const bool kept = keeper_.Finish();
    leaving_ =
        !script_lives || (kept && (now - ended_at_ >= kLastWordsWithin || !InContact(paths_)));
  }

  // Here another allocation of the same user may have been killed without a word.
  void RemoveDeadRoot() {
    const std::string root = dead_roots_.Next();
    if (root.empty()) return;
    Log(LogLevel::kInfo, absl::StrCat("hold: its allocation is over, so ", root, " is removed"));
    (void)StartRemoval(root);
  }

  // Stops the server that an earlier holder has started.
  void StopOtherServer() {
    const ProcessId other = ServerOfNote(paths_);
    const absl::Duration patience = clock_.SinceBoot() + kServerDownWithin;
    while (IsLocked(paths_.server_lock).value_or(false)) {
      const bool late = clock_.SinceBoot() > patience;
      if (!SendSignal(other, late ? SIGKILL : SIGTERM) && late) return;
      clock_.SleepFor(absl::Milliseconds(kEndTickMs));
    }
  }

  // Starts the server when nobody holds its lock. The server of a dead guard lives on; then only
  // its lock can be watched.
  void TendServer() {
    if (server_ > 0 || clock_.SinceBoot() < next_start_) return;
    absl::StatusOr<bool> running = IsLocked(paths_.server_lock);
    if (!running.ok() || *running) return;
    // The upgrade command may have come while no guard was there to read it.
    Upgrade();
    const std::string current = CurrentBundle(paths_);
    const std::string bundle = current.empty() ? options_.bundle_dir : current;
    UniqueFd log(file_ops::Open(paths_.log, O_WRONLY | O_CREAT | O_APPEND, 0600));
    SpawnOptions spawn;
    spawn.argv = {JoinPath(bundle, "gpuctl-agent"), "server", "--root", paths_.root};
    spawn.stdin_fd = handover_.valid() ? handover_.get() : -1;
    spawn.stderr_fd = log.get();
    spawn.new_session = true;
    absl::StatusOr<pid_t> pid = Spawn(spawn);
    // The first restart is immediate. The pauses grow for a server that keeps dying.
    const absl::Duration now = clock_.SinceBoot();
    if (now - last_start_ > absl::Minutes(1)) pause_ = absl::ZeroDuration();
    next_start_ = now + pause_;
    pause_ = std::min(pause_ * 2 + absl::Milliseconds(100), kLongestPause);
    last_start_ = now;
    if (pid.ok()) {
      server_ = *pid;
    } else {
      Log(LogLevel::kError, absl::StrCat("guard: ", pid.status().message()));
    }
  }

  // Asks the provider to end the node while the limits require it. It repeats the request, because
  // only the end of this machine proves success. A separate process makes the request, so that a
  // hanging server or the TLS library cannot harm the guard.
  void TendRelease() {
    if (limits_.release_due().empty() || release_ > 0 || clock_.SinceBoot() < next_release_) return;
    if (absl::StatusOr<StoredLimits> stored = ReadNodeLimits(paths_);
        !stored.ok() || !CanRelease(stored->limits, paths_).ok()) {
      next_release_ = clock_.SinceBoot() + kReleaseEvery;
      return;
    }
    Log(LogLevel::kInfo, absl::StrCat("guard: releasing the node, ", limits_.release_due()));
    const std::string current = CurrentBundle(paths_);
    UniqueFd log(file_ops::Open(paths_.log, O_WRONLY | O_CREAT | O_APPEND, 0600));
    SpawnOptions spawn;
    const std::string program =
        JoinPath(current.empty() ? options_.bundle_dir : current, "gpuctl-agent");
    // Where somebody removed the root, nobody may ever bring the programs again.
    spawn.argv = {PathExists(program) ? program : OwnProgram(), "release", "--root", paths_.root};
    spawn.stderr_fd = log.get();
    spawn.new_session = true;
    const absl::StatusOr<pid_t> pid = Spawn(spawn);
    release_ = pid.ok() ? *pid : -1;
    if (!pid.ok()) EndRelease(false);
  }

  void EndRelease(bool asked) {
    release_ = -1;
    release_pause_ =
        asked ? kReleaseEvery : std::min(release_pause_ * 2 + kFirstReleasePause, kReleaseEvery);
    next_release_ = clock_.SinceBoot() + release_pause_;
    if (asked) release_pause_ = absl::ZeroDuration();
  }

  void HandleSignals() {
    for (const int number : signals_.Take()) {
      if (number != SIGCHLD) Leave();
    }
  }

  void HandleCommands() {
    char buffer[256];
    ssize_t got = 0;
    while ((got = read(control_.get(), buffer, sizeof(buffer))) > 0) {
      commands_.append(buffer, static_cast<size_t>(got));
    }
    for (size_t end; (end = commands_.find('\n')) != std::string::npos;) {
      const std::string command = commands_.substr(0, end);
      commands_.erase(0, end + 1);
      if (command == "exit") Leave();
      if (command == "upgrade") Upgrade();
    }
    if (commands_.size() > sizeof(buffer)) commands_.clear();
  }

  // A holder leaves only after the end of all jobs.
  void Leave() { (options_.hold ? told_to_end_ : leaving_) = true; }

  // Ends the server, also that of an earlier guard, and then this guard. Who comes meanwhile waits
  // for the guard's lock and starts another.
  void LeaveIdle() {
    Log(LogLevel::kInfo, "guard: nobody was here for long, and no job is; it ends");
    StopServer();
    StopOtherServer();
    leaving_ = true;
  }

  // Reaps our own and adopted children.
  void Reap() {
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid == release_) EndRelease(WIFEXITED(status) && WEXITSTATUS(status) == 0);
      keeper_.Ended(pid, status);
      if (pid != server_) continue;
      server_ = -1;
      if (!leaving_) {
        Log(LogLevel::kWarning, absl::StrCat("guard: the server ended, status ", status));
      }
    }
  }

  void StopServer() {
    if (server_ <= 0) return;
    kill(server_, SIGTERM);
    const absl::Duration deadline = clock_.SinceBoot() + kServerDownWithin;
    while (server_ > 0) {
      pollfd waited{signals_.fd(), POLLIN, 0};
      poll(&waited, 1, 100);
      (void)signals_.Take();
      Reap();
      if (server_ > 0 && clock_.SinceBoot() > deadline) kill(server_, SIGKILL);
    }
  }

  // Becomes the guard of bin/current, with the same pid, lock and children. Goes on unchanged when
  // it is that guard already, or when the change fails.
  void Upgrade() {
    const std::string current = CurrentBundle(paths_);
    if (current.empty() || current == options_.bundle_dir || end_.has_value()) return;
    Log(LogLevel::kInfo, absl::StrCat("guard: becoming ", current));
    const int inherited = fcntl(lock_.get(), F_DUPFD, 3);
    StopServer();
    keeper_.Leave();
    const std::string program = JoinPath(current, "gpuctl-agent");
    const std::string lock_fd = absl::StrCat(inherited);
    const int handed = handover_.valid() ? fcntl(handover_.get(), F_DUPFD, 3) : -1;
    const std::string handover_fd = absl::StrCat(handed);
    const std::string until = absl::StrCat(options_.claim_until_s);
    execl(program.c_str(), program.c_str(), options_.hold ? "hold" : "guard", "--root",
          paths_.root.c_str(), "--lock-fd", lock_fd.c_str(), "--handover-fd", handover_fd.c_str(),
          options_.hold ? "--claim-until" : static_cast<char*>(nullptr), until.c_str(),
          static_cast<char*>(nullptr));
    Log(LogLevel::kError, ErrnoStatus(errno, absl::StrCat("guard: become ", program)).message());
    close(inherited);
    if (handed >= 0) close(handed);
  }

  const GuardOptions options_;
  const RootPaths paths_;
  const UniqueFd lock_;
  Clock& clock_;
  LimitKeeper limits_;
  ResultsKeeperProcess keeper_;
  DeadRoots dead_roots_;
  IdleEnd idle_;
  SignalPipe signals_;
  UniqueFd control_;
  UniqueFd handover_;
  std::map<std::string, std::string> kept_;  // what a rented machine's limits are in, by path
  absl::Duration removed_at_ = absl::InfiniteDuration();
  std::string commands_;
  pid_t server_ = -1;
  pid_t release_ = -1;
  absl::Duration next_release_ = -absl::InfiniteDuration();
  absl::Duration release_pause_;
  bool leaving_ = false;
  bool told_to_end_ = options_.end;
  std::optional<JobsEnd> end_;  // the allocation is ending
  absl::Duration ended_at_ = absl::InfiniteDuration();
  absl::Duration last_start_ = -absl::InfiniteDuration();
  absl::Duration next_start_ = -absl::InfiniteDuration();
  absl::Duration pause_;
};

// Starts the same program without --detach and returns. Init or an older subreaper inherits it.
int Detach(const GuardOptions& options, const RootPaths& paths) {
  UniqueFd log(file_ops::Open(paths.log, O_WRONLY | O_CREAT | O_APPEND, 0600));
  SpawnOptions spawn;
  spawn.argv = {JoinPath(options.bundle_dir, "gpuctl-agent"), "guard", "--root", paths.root};
  spawn.stderr_fd = log.get();
  spawn.new_session = true;
  return Spawn(spawn).ok() ? 0 : 1;
}

absl::StatusOr<UniqueFd> TakeLock(const GuardOptions& options, const RootPaths& paths) {
  const absl::Duration end = Clock::Real().SinceBoot() + kLockWithin;
  while (options.lock_fd < 0) {
    absl::StatusOr<UniqueFd> lock = TryLock(paths.guard_lock);
    // The holder must not fail because somebody looks who has the lock.
    const bool again = options.hold && absl::IsUnavailable(lock.status());
    if (!again || Clock::Real().SinceBoot() >= end) return lock;
    Clock::Real().SleepFor(absl::Milliseconds(5));
  }
  fcntl(options.lock_fd, F_SETFD, FD_CLOEXEC);
  return UniqueFd(options.lock_fd);
}

}  // namespace

int RunGuard(const GuardOptions& options) {
  absl::StatusOr<RootPaths> paths = PrepareNodeRoot(options.root);
  if (!paths.ok()) {
    Log(LogLevel::kError, paths.status().message());
    return 1;
  }
  if (IsHeldRoot(*paths) != options.hold) {
    Log(LogLevel::kError,
        options.hold ? absl::StrCat(options.root, " is not the root of an allocation")
                     : absl::StrCat("only the batch script of the allocation starts a guard in ",
                                    options.root));
    return 1;
  }
  if (options.detach) return Detach(options, *paths);
  LogToFile(paths->log);
  absl::StatusOr<UniqueFd> lock = TakeLock(options, *paths);
  // For a batch script, 0 is the end of the allocation.
  if (absl::IsUnavailable(lock.status())) return options.hold ? 1 : 0;
  absl::Status status = lock.status();
  if (status.ok()) {
    signal(SIGPIPE, SIG_IGN);
    BecomeSubreaper();
    ShieldFromOom();
    absl::StatusOr<SignalPipe> signals =
        SignalPipe::Install({SIGTERM, SIGINT, SIGCHLD}, SignalPipe::WaitingCall::kRestarted);
    status = signals.status();
    if (status.ok()) {
      status = Guard(options, *paths, *std::move(lock), *std::move(signals), Clock::Real()).Run();
    }
  }
  if (status.ok()) return 0;
  Log(LogLevel::kError, absl::StrCat("guard: ", status.ToString()));
  return 1;
}

}  // namespace gpuctl
