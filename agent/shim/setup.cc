#include "agent/shim/setup.h"

#include <signal.h>
#include <string.h>
#include <sys/select.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "agent/base/platform.h"
#include "agent/base/processes.h"
#include "agent/base/signals.h"
#include "agent/envs/env_key.h"
#include "agent/envs/env_store.h"
#include "agent/envs/packages.h"
#include "agent/shim/child.h"
#include "common/base/bounded_json.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/job/lifecycle.h"

namespace gpuctl {
namespace {

constexpr int kExitOurs = 126;
constexpr absl::Duration kEnvLockInterval = absl::Milliseconds(100);
constexpr absl::Duration kEnvSweepPatience = absl::Seconds(30);
constexpr absl::Duration kLeftTerminateTime = absl::Seconds(5);
constexpr absl::Duration kEndsByItself = absl::Milliseconds(500);
constexpr absl::Duration kReapInterval = absl::Milliseconds(20);
constexpr uint64_t kFullDiskBytes = 16 << 20;

volatile sig_atomic_t told_to_stop = 0;
void OnStop(int) { told_to_stop = 1; }
void OnChild(int) {}

std::string Took(absl::Duration time) {
  return absl::FormatDuration(absl::Trunc(time, absl::Milliseconds(100)));
}

class Setup {
 public:
  Setup(const SetupOptions& options, int news, int go)
      : options_(options),
        news_(news),
        go_(go),
        clock_(Clock::Real()),
        root_(DirName(DirName(options.paths.dir))) {}

  Environment Run() {
    CatchSignals();
    BecomeSubreaper();
    began_ = clock_.SinceBoot();
    absl::StatusOr<EnvPaths> env = Provide();
    if (!env.ok()) FailByUs(env.status());
    // Somebody may remove an environment that nobody uses.
    const absl::StatusOr<UniqueFd> used = UseEnv(*env);
    if (!used.ok()) FailByUs(used.status());
    lock_.reset();
    for (const LifecycleEvent& event : PackageEvents(options_.attempt, packages_)) Tell(event);
    LifecycleEvent ended = NewEvent(LifecycleEvent::Type::kSetupEnded);
    ended.environment = BaseName(env->dir);
    ended.exit_code = 0;
    if (reused_) ended.reason = kReusedReason;
    Tell(ended);
    WaitForGo();
    ResignSubreaper();
    if (told_to_stop != 0) EndBy(SIGTERM);
    return WithEnv(options_.environment, env->prefix, /*making=*/false);
  }

 private:
  static void CatchSignals() {
    struct sigaction action {};
    action.sa_handler = OnStop;
    sigaction(SIGTERM, &action, nullptr);
    action.sa_handler = OnChild;
    action.sa_flags = SA_NOCLDSTOP;
    sigaction(SIGCHLD, &action, nullptr);
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_SETMASK, &blocked, nullptr);
  }

  // Waits for a signal, at most `time`. Ends the process when the shim is gone.
  void Pause(absl::Duration time) {
    fd_set fds;
    FD_ZERO(&fds);
    FD_SET(go_, &fds);
    sigset_t none;
    sigemptyset(&none);
    timespec most = absl::ToTimespec(time);
    // Before its news the shim writes nothing, so this is the pipe's end.
    if (pselect(go_ + 1, &fds, nullptr, nullptr, &most, &none) > 0) {
      KillLeft(absl::ZeroDuration());
      _exit(kExitOurs);
    }
  }

  LifecycleEvent NewEvent(LifecycleEvent::Type type) const {
    LifecycleEvent event;
    event.type = type;
    event.attempt = options_.attempt;
    return event;
  }
  void Tell(const LifecycleEvent& event) const {
    (void)WriteAll(news_, FormatLifecycleEvent(event), "news");
  }
  // Prints a line among the job's output.
  static void Print(absl::string_view text) {
    (void)WriteAll(STDOUT_FILENO, absl::StrCat("gpuctl: ", text, "\n"), "output");
  }

  [[noreturn]] static void EndBy(int number) {
    ResetSignals();
    kill(getpid(), number);
    _exit(128 + number);
  }

  [[noreturn]] void FailByUs(const absl::Status& status) const {
    LifecycleEvent ended = NewEvent(LifecycleEvent::Type::kSetupEnded);
    ended.exit_code = kExitOurs;
    ended.error = absl::StrCat("setup: ", status.message());
    Print(ended.error);
    Tell(ended);
    _exit(kExitOurs);
  }

  void WaitForGo() const {
    char go = 0;
    ssize_t got = 0;
    do {
      got = read(go_, &go, 1);
    } while (got < 0 && errno == EINTR);
    if (got != 1) _exit(kExitOurs);
  }

  // Returns the environment, whole. lock_ is held for it.
  absl::StatusOr<EnvPaths> Provide() {
    if (absl::StatusOr<EnvPaths> noted = FindNoted(); noted.ok()) return noted;
    ASSIGN_OR_RETURN(const EnvKey key,
                     ComputeEnvKey(options_.spec, options_.paths.work, options_.environment));
    digest_ = key.digest;
    EnvPaths env(root_, EnvName(digest_));
    RETURN_IF_ERROR(Lock(env));
    std::optional<EnvMarker> marker = ReadEnvMarker(env, digest_);
    if (marker.has_value() && IsOurs(*marker)) return Reuse(env, *marker);
    const absl::StatusOr<UniqueFd> unused = TryLock(env.used);
    if (absl::IsUnavailable(unused.status())) {
      // A live job uses what is there, so it must stay as it is.
      Print(absl::StrCat("environment ", Shown(env), " is another run's",
                         marker.has_value() ? absl::StrCat(" alone: ", marker->bound_why) : "",
                         "; this run makes its own"));
      env = EnvPaths(root_, EnvName(digest_, options_.spec.job_id()));
      RETURN_IF_ERROR(Lock(env));
      marker = ReadEnvMarker(env, digest_);
      if (marker.has_value() && IsOurs(*marker)) return Reuse(env, *marker);
    }
    if (absl::Status made = Make(env); !made.ok()) {
      TellFullDisk(env);
      // What is there is of no use, and may fill the disk.
      (void)RemoveTree(env.prefix);
      return made;
    }
    return env;
  }

  bool IsOurs(const EnvMarker& marker) const {
    return marker.bound_to.empty() || marker.bound_to == options_.paths.dir;
  }
  static std::string Shown(const EnvPaths& env) { return BaseName(env.dir).substr(0, 12); }

  EnvPaths Reuse(const EnvPaths& env, const EnvMarker& marker) {
    reused_ = true;
    packages_ = marker.packages;
    Print(absl::StrCat("environment ", Shown(env), ": there already, ",
                       Took(clock_.SinceBoot() - began_)));
    Note(env);
    return env;
  }

  // Returns what an earlier attempt of this job used: it counts although the work directory, which
  // the job may write to, has changed.
  absl::StatusOr<EnvPaths> FindNoted() {
    ASSIGN_OR_RETURN(const std::string text,
                     ReadFileToString(options_.paths.environment, 64 << 10));
    const nlohmann::json json = ParseBoundedJson(text, {.bytes = 64 << 10, .depth = 4});
    if (!json.is_object() || !json.contains("name") || !json.contains("digest") ||
        !json["name"].is_string() || !json["digest"].is_string()) {
      return absl::DataLossError("it is no note of an environment");
    }
    const std::string name = json["name"].get<std::string>();
    const EnvPaths env(root_, BaseName(name));
    RETURN_IF_ERROR(Lock(env));
    const std::optional<EnvMarker> marker = ReadEnvMarker(env, json["digest"].get<std::string>());
    if (marker.has_value() && IsOurs(*marker)) return Reuse(env, *marker);
    lock_.reset();
    return absl::NotFoundError("it is gone");
  }

  void Note(const EnvPaths& env) const {
    const nlohmann::ordered_json note = {{"name", BaseName(env.dir)}, {"digest", digest_}};
    if (!digest_.empty()) (void)WriteFileAtomic(options_.paths.environment, note.dump() + "\n");
  }

  absl::Status Lock(const EnvPaths& env) {
    lock_.reset();
    for (bool told = false;; told = true) {
      absl::StatusOr<UniqueFd> lock = LockEnv(env);
      if (lock.ok()) {
        lock_ = *std::move(lock);
        return absl::OkStatus();
      }
      if (!absl::IsUnavailable(lock.status())) return lock.status();
      if (!told) {
        Print(absl::StrCat("environment ", Shown(env), ": another run makes it; waiting for that"));
      }
      Pause(kEnvLockInterval);
      if (told_to_stop != 0) EndBy(SIGTERM);
    }
  }

  absl::Status Make(const EnvPaths& env) {
    const std::string mark = absl::StrCat(kBuildsVariable, "=", env.prefix);
    // Its shim may have died, and the lock with it.
    RETURN_IF_ERROR(SweepProcessesWith(mark, kEnvSweepPatience, clock_));
    if (file_ops::Unlink(env.complete) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("remove ", env.complete));
    }
    RETURN_IF_ERROR(RemoveTree(env.prefix));
    RETURN_IF_ERROR(MakeDirectories(env.prefix, 0755));
    // Room for this one, if there are others that nobody needs.
    (void)SweepEnvs(root_, WantFreeBytes(root_), clock_);
    const auto before = ListPaths(options_.paths.work);
    // A stop that came meanwhile is told now: signals are blocked elsewhere.
    Pause(absl::ZeroDuration());
    if (told_to_stop != 0) EndBy(SIGTERM);
    Print(absl::StrCat("setup: makes environment ", Shown(env)));
    const absl::Duration start = clock_.SinceBoot();
    prefix_ = env.prefix;
    ASSIGN_OR_RETURN(const int status, RunScript());
    const std::string took = Took(clock_.SinceBoot() - start);
    if (status != 0) Fail(env, status, took);
    // A stop that came at the last moment, and found the script done.
    if (told_to_stop != 0) Fail(env, SIGTERM, took);
    EnvMarker marker;
    marker.digest = digest_;
    marker.took_ms = absl::ToInt64Milliseconds(clock_.SinceBoot() - start);
    marker.bound_why = WhyBound(env.prefix, options_.paths.dir, NewPaths(before));
    if (!marker.bound_why.empty()) marker.bound_to = options_.paths.dir;
    marker.packages = PackagesIn(SitePackagesSeenFrom(env.prefix));
    if (const std::string python = PythonVersionOf(env.prefix); !python.empty()) {
      marker.packages.insert(marker.packages.begin(), absl::StrCat("python==", python));
    }
    RETURN_IF_ERROR(WriteEnvMarker(env, marker));
    packages_ = std::move(marker.packages);
    Print(absl::StrCat("setup: done in ", took));
    if (!marker.bound_why.empty()) {
      Print(
          absl::StrCat("setup: the environment is for this run alone, because ", marker.bound_why));
    }
    Note(env);
    return absl::OkStatus();
  }

  // Returns the paths of the work directory that were not there `before`.
  std::vector<std::string> NewPaths(const std::optional<std::vector<std::string>>& before) const {
    const auto after = ListPaths(options_.paths.work);
    std::vector<std::string> made;
    if (!before.has_value() || !after.has_value()) return made;
    std::set_difference(after->begin(), after->end(), before->begin(), before->end(),
                        std::back_inserter(made));
    return made;
  }

  // Runs the script and whatever it starts to the end. Returns its wait status.
  absl::StatusOr<int> RunScript() {
    const Environment environment = WithEnv(options_.environment, prefix_, /*making=*/true);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) return ErrnoStatus(errno, "fork");
    if (pid == 0) {
      ResetSignals();
      if (!DieWithParent(parent)) _exit(kExitOurs);
      const int error = ExecuteProgram({"bash", "-eo", "pipefail", "-c", options_.spec.setup()},
                                       environment, options_.secrets);
      Print(absl::StrCat("setup: exec bash: ", strerror(error)));
      _exit(error == ENOENT ? 127 : kExitOurs);
    }
    int result = -1;
    while (result < 0) {
      int status = 0;
      const pid_t reaped = waitpid(-1, &status, WNOHANG);
      if (reaped == pid) result = status;
      if (reaped == 0) Pause(absl::Seconds(10));
      if (reaped < 0 && errno != EINTR) return ErrnoStatus(errno, "wait for the script");
    }
    KillLeft(kLeftTerminateTime);
    return result;
  }

  std::vector<ProcessId> Left() const {
    std::vector<ProcessId> left = Descendants(getpid());
    if (prefix_.empty()) return left;
    for (const ProcessId& process : ProcessesWith(absl::StrCat(kBuildsVariable, "=", prefix_))) {
      if (!absl::c_linear_search(left, process)) left.push_back(process);
    }
    return left;
  }

  // Ends the processes that the script left: SIGTERM, and SIGKILL after `patience`. Some are about
  // to end by themselves, such as a tee behind the script.
  void KillLeft(absl::Duration patience) {
    const absl::Duration wait_until = clock_.SinceBoot() + std::min(patience, kEndsByItself);
    std::vector<ProcessId> left = Left();
    while (!left.empty() && clock_.SinceBoot() < wait_until) {
      clock_.SleepFor(kReapInterval);
      left = Left();
    }
    const absl::Duration kill_at = clock_.SinceBoot() + patience;
    if (!left.empty() && patience > absl::ZeroDuration()) {
      Print(absl::StrCat("setup: ends ", left.size(), " process", left.size() == 1 ? "" : "es",
                         " that it left running"));
    }
    for (const ProcessId& process : left) SendSignal(process, SIGTERM);
    while (!left.empty()) {
      if (clock_.SinceBoot() >= kill_at) {
        for (const ProcessId& process : left) SendSignal(process, SIGKILL);
      }
      while (waitpid(-1, nullptr, WNOHANG) > 0) {
      }
      clock_.SleepFor(kReapInterval);
      left = Left();
      // What does not die of SIGKILL waits for a device or a file system.
      if (clock_.SinceBoot() >= kill_at + kLeftTerminateTime) return;
    }
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }

  void TellFullDisk(const EnvPaths& env) const {
    struct statvfs disk {};
    if (statvfs(env.dir.c_str(), &disk) != 0) return;
    const uint64_t free = disk.f_bavail * disk.f_frsize;
    if (free >= kFullDiskBytes) return;
    Print(absl::StrCat("setup: the disk of ", root_.envs, " is full: ", free, " bytes are free"));
  }

  [[noreturn]] void Fail(const EnvPaths& env, int status, const std::string& took) {
    LifecycleEvent ended = NewEvent(LifecycleEvent::Type::kSetupEnded);
    ended.environment = BaseName(env.dir);
    if (WIFSIGNALED(status)) {
      ended.signal = WTERMSIG(status);
    } else {
      ended.exit_code = WEXITSTATUS(status);
    }
    const bool stopped = told_to_stop != 0;
    Print(stopped ? absl::StrCat("setup: stopped after ", took)
                  : absl::StrCat("setup: failed with ",
                                 ended.signal != 0 ? absl::StrCat("signal ", ended.signal)
                                                   : absl::StrCat("exit code ", ended.exit_code),
                                 " after ", took));
    TellFullDisk(env);
    Tell(ended);
    // What is there is of no use, and may fill the disk.
    (void)RemoveTree(env.prefix);
    if (stopped) EndBy(SIGTERM);
    if (ended.signal != 0) EndBy(ended.signal);
    _exit(ended.exit_code);
  }

  const SetupOptions& options_;
  const int news_;
  const int go_;
  Clock& clock_;
  const RootPaths root_;
  UniqueFd lock_;
  std::string digest_;
  std::string prefix_;  // while the script runs
  std::vector<std::string> packages_;
  bool reused_ = false;
  absl::Duration began_;
};

}  // namespace

Environment RunSetup(const SetupOptions& options, int news, int go) {
  return Setup(options, news, go).Run();
}

}  // namespace gpuctl
