#include "agent/ranks/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/base/environment.h"
#include "agent/base/last_word.h"
#include "agent/base/platform.h"
#include "agent/base/processes.h"
#include "agent/base/signals.h"
#include "agent/ranks/merger.h"
#include "agent/ranks/rank_place.h"
#include "common/base/clock.h"
#include "common/base/rank_mark.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/process/pipe.h"
#include "common/process/process.h"

namespace gpuctl {
namespace {

// Each needs a descriptor of ours.
constexpr int kMostProcesses = 512;
constexpr int kNotFound = 127;
constexpr int kNotExecutable = 126;
constexpr int kUsage = 64;
constexpr absl::Duration kTerminateTime = absl::Seconds(5);
constexpr absl::Duration kKillInterval = absl::Milliseconds(100);
// Lines are taken so often at most: each look costs the same for one line as for a thousand.
constexpr absl::Duration kReadInterval = absl::Milliseconds(20);
// The unfinished line of rank 0 is told after that time.
constexpr absl::Duration kHoldTime = absl::Milliseconds(100);
constexpr size_t kReadBytes = 256 << 10;
constexpr int kPipeBytes = 256 << 10;
// Pipes of users without privileges share a limit.
constexpr int kMostLargePipes = 32;
// While so much waits for the shim, the processes wait, too.
constexpr size_t kMostWaitingBytes = 4 << 20;
constexpr size_t kTailBytes = 8 << 10;
constexpr size_t kTailLines = 8;
constexpr size_t kLongestTold = 200;
constexpr absl::string_view kPortTaken[] = {"address already in use", "eaddrinuse"};

struct Caught {
  int number = 0;
  pid_t sender = 0;
};
int caught_pipe[2] = {-1, -1};
volatile sig_atomic_t child_ended = 0;

void OnChild(int) {
  const int saved = errno;
  child_ended = 1;
  const Caught caught{SIGCHLD, 0};
  [[maybe_unused]] const ssize_t written = write(caught_pipe[1], &caught, sizeof(caught));
  errno = saved;
}

void OnTold(int number, siginfo_t* info, void*) {
  const int saved = errno;
  const Caught caught{number, info->si_pid};
  [[maybe_unused]] const ssize_t written = write(caught_pipe[1], &caught, sizeof(caught));
  errno = saved;
}

absl::Status CatchAll() {
  if (pipe(caught_pipe) != 0) return ErrnoStatus(errno, "make the signal pipe");
  for (const int fd : caught_pipe) {
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || fcntl(fd, F_SETFL, O_NONBLOCK) != 0) {
      return ErrnoStatus(errno, "make the signal pipe");
    }
  }
  struct sigaction action {};
  action.sa_flags = SA_RESTART | SA_NOCLDSTOP;
  action.sa_handler = OnChild;
  sigaction(SIGCHLD, &action, nullptr);
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  action.sa_sigaction = OnTold;
  for (int number = 1; number < NSIG; ++number) {
    switch (number) {
      case SIGCHLD:
      case SIGKILL:
      case SIGSTOP:
      case SIGCONT:
      case SIGTSTP:
      case SIGTTIN:
      case SIGTTOU:
      // Our own faults.
      case SIGSEGV:
      case SIGBUS:
      case SIGFPE:
      case SIGILL:
      case SIGTRAP:
      case SIGABRT:
      case SIGSYS:
        break;
      case SIGPIPE:
      case SIGXFSZ:
        signal(number, SIG_IGN);
        break;
      default:
        sigaction(number, &action, nullptr);
    }
  }
  return absl::OkStatus();
}

struct Process {
  pid_t pid = -1;
  UniqueFd pipe;
  bool over = false;
  int status = 0;    // of wait, once it is over
  std::string tail;  // the end of what it printed
};

std::string HowEnded(int status) {
  if (WIFSIGNALED(status)) {
    const char* name = strsignal(WTERMSIG(status));
    return absl::StrCat("signal ", WTERMSIG(status),
                        name == nullptr ? "" : absl::StrCat(" (", name, ")"));
  }
  return absl::StrCat("exit code ", WEXITSTATUS(status));
}

// Returns the last lines of a text that are not blank, as they can stand in one line each.
std::vector<std::string> LastLines(absl::string_view tail) {
  std::vector<std::string> lines;
  for (absl::string_view line : absl::StrSplit(tail, '\n')) {
    line = absl::StripTrailingAsciiWhitespace(line);
    if (const size_t back = line.rfind('\r'); back != line.npos) line.remove_prefix(back + 1);
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    std::string text(line.substr(0, kLongestTold));
    for (char& c : text) {
      if (absl::ascii_iscntrl(static_cast<unsigned char>(c)) && c != '\t') c = '?';
    }
    lines.push_back(std::move(text));
  }
  if (lines.size() > kTailLines) lines.erase(lines.begin(), lines.end() - kTailLines);
  return lines;
}

class Launcher {
 public:
  Launcher(LauncherOptions options, RankPlace place, Environment environment)
      : options_(std::move(options)),
        place_(std::move(place)),
        environment_(std::move(environment)),
        parent_(getppid()),
        clock_(Clock::Real()),
        merger_(place_.first_rank(), place_.local),
        buffer_(kReadBytes, '\0') {}

  int Run() {
    fcntl(STDOUT_FILENO, F_SETFL, O_NONBLOCK);
    adopts_orphans_ = BecomeSubreaper();
    StartAll();
    while (true) {
      Reap();
      if (clock_.SinceBoot() >= deadline_) OnDeadline();
      if (Empty() && WantsAnotherPort()) StartAgain();
      if (Finished()) break;
      Wait();
    }
    TellEnd();
    WriteRest();
    return End();
  }

 private:
  enum class State {
    kRunning,
    kStopping,     // SIGTERM was sent to all by us; the grace runs
    kTold,         // the parent stops the job, and ends it after its grace
    kLingering,    // all processes have ended by themselves; what they started may end
    kTerminating,  // it got SIGTERM
    kKilling,
  };

  static constexpr int kNobody = -1;

  void StartAll() {
    const absl::Status status = TryStartAll();
    if (status.ok()) return;
    merger_.Say(status.message(), out_);
    exit_code_ = kNotExecutable;
    child_ended = 1;  // perhaps none has begun
    Enter(State::kStopping);
  }

  absl::Status TryStartAll() {
    no_children_ = false;
    port_ = place_.port;
    if (port_ == 0) {
      ASSIGN_OR_RETURN(port_, FreePort());
    }
    processes_.clear();
    processes_.resize(static_cast<size_t>(place_.local));
    for (int local = 0; local < place_.local; ++local) RETURN_IF_ERROR(Start(local));
    return absl::OkStatus();
  }

  absl::Status Start(int local) {
    ASSIGN_OR_RETURN(FdPair pipe, MakePipe("start a process"));
    fcntl(pipe.first.get(), F_SETFL, O_NONBLOCK);
    if (place_.local <= kMostLargePipes) GrowPipe(pipe.first.get(), kPipeBytes);
    const auto variables = RankVariables(place_, local, port_, environment_);
    const pid_t self = getpid();
    const pid_t pid = fork();
    if (pid < 0) return ErrnoStatus(errno, "start a process: fork");
    if (pid == 0) RunProcess(local, pipe.second.get(), variables, self);
    Process& process = processes_[static_cast<size_t>(local)];
    process.pid = pid;
    process.pipe = std::move(pipe.first);
    return absl::OkStatus();
  }

  [[noreturn]] void RunProcess(int output_of, int output,
                               const std::vector<std::pair<std::string, std::string>>& variables,
                               pid_t parent) {
    if (!DieWithParent(parent)) _exit(kNotExecutable);
    // So that a script's `kill 0` reaches only what it started itself.
    setpgid(0, 0);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    ResetSignals();
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> argv;
    for (std::string& word : options_.argv) argv.push_back(word.data());
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    const int error = errno;
    const std::string why = absl::StrCat("exec ", options_.argv[0], ": ", strerror(error));
    const std::string line = absl::StrCat("gpuctl: ", why, "\n");
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
    // The first word counts: whichever ends first may be the end of the others. So many short ones
    // have room in a pipe.
    constexpr size_t kShort = 256;
    if (output_of == 0 || why.size() < kShort) SayLastWord(options_.word_fd, kExecErrorWord, why);
    _exit(error == ENOENT || error == ENOTDIR ? kNotFound : kNotExecutable);
  }

  // Starts all once more, with another port.
  void StartAgain() {
    DrainAll();
    merger_.Say(absl::StrCat("port ", port_,
                             " was taken meanwhile; all processes are started again with another"),
                out_);
    tried_again_ = true;
    first_.reset();
    state_ = State::kRunning;
    deadline_ = absl::InfiniteDuration();
    StartAll();
  }

  // True when the first process that failed says that the port was taken, and we chose the port.
  bool WantsAnotherPort() const {
    if (tried_again_ || place_.port != 0 || stopped_ || !first_.has_value()) return false;
    const Process& process = processes_[static_cast<size_t>(*first_)];
    if (!WIFEXITED(process.status)) return false;
    const std::string tail = absl::AsciiStrToLower(process.tail);
    if (!absl::StrContains(tail, absl::StrCat(port_))) return false;
    return std::any_of(std::begin(kPortTaken), std::end(kPortTaken),
                       [&tail](absl::string_view words) { return absl::StrContains(tail, words); });
  }

  void Wait() {
    const absl::Duration now = clock_.SinceBoot();
    if (merger_.holds()) {
      if (now >= hold_until_) merger_.Flush(out_);
    }
    const bool reads = now >= read_at_ && out_.size() < kMostWaitingBytes;
    fds_.clear();
    fds_.push_back({caught_pipe[0], POLLIN, 0});
    fds_.push_back({out_.empty() ? -1 : STDOUT_FILENO, POLLOUT, 0});
    if (reads) {
      for (const Process& process : processes_) {
        fds_.push_back({process.pipe.valid() ? process.pipe.get() : -1, POLLIN, 0});
      }
    }
    absl::Duration next = deadline_;
    if (!reads && out_.size() < kMostWaitingBytes) next = std::min(next, read_at_);
    if (merger_.holds()) next = std::min(next, hold_until_);
    int timeout = -1;
    if (next < absl::InfiniteDuration()) {
      const absl::Duration wait =
          std::clamp(next - clock_.SinceBoot(), absl::ZeroDuration(), absl::Seconds(10));
      timeout =
          static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(wait, absl::Milliseconds(1))));
    }
    if (poll(fds_.data(), fds_.size(), timeout) < 0) return;
    if (fds_[0].revents != 0) ReadCaught();
    if (reads) ReadReady();
    WriteSome();
  }

  void ReadCaught() {
    Caught caught;
    while (read(caught_pipe[0], &caught, sizeof(caught)) == sizeof(caught)) {
      if (caught.number == SIGCHLD) continue;
      OnSignal(caught);
    }
  }

  void OnSignal(const Caught& caught) {
    const bool from_parent = caught.sender == parent_;
    if (caught.number == SIGTERM) stopped_ = true;
    if (from_parent) {
      // The shim signals all processes of the job itself.
      if (caught.number == SIGTERM && state_ == State::kRunning) Enter(State::kTold);
      return;
    }
    if (caught.number == SIGTERM) {
      if (state_ == State::kRunning) Enter(State::kStopping);
      if (state_ == State::kLingering) Enter(State::kTerminating);
      return;
    }
    for (const ProcessId& process : Descendants(getpid())) SendSignal(process, caught.number);
  }

  void ReadReady() {
    bool any = false, full = false;
    for (size_t i = 0; i < processes_.size(); ++i) {
      if (fds_[i + 2].revents == 0) continue;
      any = true;
      full = ReadOne(static_cast<int>(i)) || full;
    }
    if (any && !full) read_at_ = clock_.SinceBoot() + kReadInterval;
  }

  // Reads what one process has printed. True when there may be much more.
  bool ReadOne(int local) {
    Process& process = processes_[static_cast<size_t>(local)];
    const ssize_t got = read(process.pipe.get(), buffer_.data(), buffer_.size());
    if (got < 0) return false;
    if (got == 0) {
      merger_.End(local, out_);
      process.pipe.reset();
      return false;
    }
    const absl::string_view bytes(buffer_.data(), static_cast<size_t>(got));
    // Rank 0's newest line, or drawing, begins to wait.
    const bool held = merger_.holds() && bytes.find_first_of("\r\n") == bytes.npos;
    merger_.Add(local, bytes, out_);
    if (!held && merger_.holds()) hold_until_ = clock_.SinceBoot() + kHoldTime;
    const size_t kept = std::min(bytes.size(), kTailBytes);
    process.tail.append(bytes.data() + bytes.size() - kept, kept);
    if (process.tail.size() > 2 * kTailBytes) {
      process.tail.erase(0, process.tail.size() - kTailBytes);
    }
    return bytes.size() >= kReadBytes / 8;
  }

  // Reads what the process has printed until now, but not without end. True when there may be more.
  bool ReadUp(int local) {
    const Process& process = processes_[static_cast<size_t>(local)];
    for (int i = 0; i < 16 && process.pipe.valid(); ++i) {
      pollfd fd{process.pipe.get(), POLLIN, 0};
      if (poll(&fd, 1, 0) <= 0) return false;
      ReadOne(local);
    }
    return process.pipe.valid();
  }

  void WriteSome() {
    size_t done = 0;
    while (done < out_.size()) {
      const ssize_t written = write(STDOUT_FILENO, out_.data() + done, out_.size() - done);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0 && errno == EAGAIN) break;
      // Nobody reads any more: the shim is gone, and so are we at once.
      done = written < 0 ? out_.size() : done + static_cast<size_t>(written);
    }
    out_.erase(0, done);
  }

  void Reap() {
    if (child_ended == 0) return;
    child_ended = 0;
    // A stop comes before the ends that it causes.
    ReadCaught();
    while (true) {
      int status = 0;
      const pid_t pid = waitpid(-1, &status, WNOHANG);
      if (pid < 0 && errno == EINTR) continue;
      no_children_ = pid < 0;
      if (pid <= 0) return;
      for (size_t i = 0; i < processes_.size(); ++i) {
        if (processes_[i].pid != pid || processes_[i].over) continue;
        processes_[i].over = true;
        processes_[i].status = status;
        OnProcessEnded(static_cast<int>(i));
      }
    }
  }

  void OnProcessEnded(int local) {
    ReadUp(local);
    const int status = processes_[static_cast<size_t>(local)].status;
    const bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    // SIGTERM that all got says nothing of why.
    const bool by_stop = state_ != State::kRunning && WIFSIGNALED(status) &&
                         (WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGKILL);
    if (failed && by_stop) {
      if (!stopped_first_.has_value()) stopped_first_ = local;
    } else if (failed && !first_.has_value()) {
      first_ = local;
      if (state_ == State::kRunning) Enter(State::kStopping);
    }
    if (state_ == State::kRunning && AllOver()) Enter(State::kLingering);
  }

  bool AllOver() const {
    return std::all_of(processes_.begin(), processes_.end(),
                       [](const Process& process) { return process.over || process.pid < 0; });
  }

  void Enter(State state) {
    state_ = state;
    const absl::Duration now = clock_.SinceBoot();
    deadline_ = absl::InfiniteDuration();
    switch (state) {
      case State::kRunning:
      case State::kTold:
        return;
      case State::kStopping:
      case State::kTerminating:
        TerminateOnce([] { return ProcessSearch{Descendants(getpid()), false}; });
        deadline_ = now + (state == State::kStopping ? options_.grace : kTerminateTime);
        return;
      case State::kLingering:
        deadline_ = now + options_.grace;
        return;
      case State::kKilling:
        for (const ProcessId& process : Descendants(getpid())) SendSignal(process, SIGKILL);
        deadline_ = now + kKillInterval;
        return;
    }
  }

  void OnDeadline() { Enter(state_ == State::kLingering ? State::kTerminating : State::kKilling); }

  // True when no process of ours is left.
  bool Empty() const { return no_children_ && AllOver(); }

  bool Finished() {
    if (!Empty() || WantsAnotherPort()) return false;
    DrainAll();
    return true;
  }

  // Takes everything that is left, once all writers are gone.
  void DrainAll() {
    for (int local = 0; local < place_.local; ++local) {
      while (ReadUp(local)) WriteRest();
      merger_.End(local, out_);
      processes_[static_cast<size_t>(local)].pipe.reset();
    }
  }

  // Returns the process whose end is the job's.
  std::optional<int> Deciding() const { return first_.has_value() ? first_ : stopped_first_; }

  void TellEnd() {
    if (!first_.has_value()) return;
    const Process& process = processes_[static_cast<size_t>(*first_)];
    const std::string who = absl::StrCat("rank ", place_.first_rank() + *first_);
    const std::string how = HowEnded(process.status);
    const std::vector<std::string> lines = LastLines(process.tail);
    std::string word = absl::StrCat(who, ": ", how);
    if (!lines.empty()) absl::StrAppend(&word, ": ", absl::StripAsciiWhitespace(lines.back()));
    SayLastWord(options_.word_fd, kRankWord, word);
    if (stopped_) return;
    merger_.Say(absl::StrCat(who, " ended first, with ", how,
                             lines.empty() ? "" : "; the last lines that it printed:"),
                out_);
    for (const std::string& line : lines) merger_.Say(absl::StrCat("  ", line), out_);
  }

  // Writes everything, and waits for the shim where it must.
  void WriteRest() {
    while (!out_.empty()) {
      pollfd fd{STDOUT_FILENO, POLLOUT, 0};
      poll(&fd, 1, -1);
      WriteSome();
    }
  }

  // Ends as the deciding process did.
  int End() const {
    const std::optional<int> deciding = Deciding();
    if (!deciding.has_value()) return exit_code_;
    const int status = processes_[static_cast<size_t>(*deciding)].status;
    if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
    rlimit none{};
    setrlimit(RLIMIT_CORE, &none);
    ResetSignals();
    kill(getpid(), WTERMSIG(status));
    return 128 + WTERMSIG(status);
  }

  LauncherOptions options_;
  const RankPlace place_;
  const Environment environment_;
  const pid_t parent_;
  Clock& clock_;
  RankMerger merger_;
  std::vector<Process> processes_;
  std::vector<pollfd> fds_;
  std::string buffer_, out_;
  State state_ = State::kRunning;
  absl::Duration deadline_ = absl::InfiniteDuration();  // of the state, in boot time
  absl::Duration read_at_ = absl::ZeroDuration();
  absl::Duration hold_until_ = absl::ZeroDuration();
  std::optional<int> first_;          // the first process that failed
  std::optional<int> stopped_first_;  // the first one that ended by the SIGTERM that all got
  bool stopped_ = false;              // somebody wants the job to end
  bool tried_again_ = false;
  bool no_children_ = false;
  bool adopts_orphans_ = false;
  int port_ = 0;
  int exit_code_ = 0;
};

// Ends a job that cannot begin: the word says why.
int Refuse(const LauncherOptions& options, absl::string_view why) {
  const std::string line = absl::StrCat("gpuctl: ", why, "\n");
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  SayLastWord(options.word_fd, kExecErrorWord, why);
  return kNotExecutable;
}

// Reads the words of LauncherArguments; false for others.
bool ReadWords(const std::vector<std::string>& words, LauncherOptions& options) {
  int64_t grace_ms = 0;
  if (words.size() < 6 || words[4] != "--" || !absl::SimpleAtoi(words[0], &options.processes) ||
      !absl::SimpleAtoi(words[1], &options.word_fd) || !absl::SimpleAtoi(words[2], &grace_ms)) {
    return false;
  }
  options.grace = absl::Milliseconds(grace_ms);
  options.nvidia_smi = words[3];
  options.argv.assign(words.begin() + 5, words.end());
  return true;
}

}  // namespace

std::vector<std::string> LauncherArguments(const LauncherOptions& options, size_t& word_fd_at) {
  word_fd_at = 3;
#ifdef __linux__
  // Also when a newer bundle has replaced this program.
  const std::string self = "/proc/self/exe";
#else
  const std::string self = SelfPath("");
#endif
  return {self,
          kLauncherWord,
          absl::StrCat(options.processes),
          absl::StrCat(options.word_fd),
          absl::StrCat(absl::ToInt64Milliseconds(options.grace)),
          options.nvidia_smi,
          "--"};
}

int RunLauncher(const std::vector<std::string>& words) {
  LauncherOptions options;
  if (!ReadWords(words, options)) return kUsage;
  if (options.word_fd >= 0) fcntl(options.word_fd, F_SETFD, FD_CLOEXEC);
  Environment environment = OwnEnvironment();
  if (options.processes < 0) {
    options.processes = CountGpus(environment, options.nvidia_smi);
    if (options.processes == 0) {
      return Refuse(options, "processes: gpus, and the job sees no GPU here");
    }
  }
  if (options.processes < 1 || options.processes > kMostProcesses) {
    return Refuse(options, absl::StrCat("processes: a job has 1 to ", kMostProcesses));
  }
  absl::StatusOr<RankPlace> place = ReadRankPlace(environment, options.processes);
  if (!place.ok()) return Refuse(options, place.status().message());
  place->cores = UsableCores();
  if (absl::Status caught = CatchAll(); !caught.ok()) return Refuse(options, caught.message());
  return Launcher(std::move(options), *std::move(place), std::move(environment)).Run();
}

}  // namespace gpuctl
