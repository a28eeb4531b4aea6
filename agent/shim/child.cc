#include "agent/shim/child.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/base/last_word.h"
#include "agent/base/platform.h"
#include "agent/base/signals.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr int kOutputPipeBytes = 1 << 20;
constexpr int kExitNotFound = 127;
constexpr int kExitNotExecutable = 126;

// Where the child failed.
struct ExecError {
  enum Step : int { kChangeDirectory, kExecute } step;
  int error;
};

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};

absl::StatusOr<Pipe> MakePipe() {
  int fds[2];
  if (pipe(fds) != 0) return ErrnoStatus(errno, "make a pipe");
  Pipe result{UniqueFd(fds[0]), UniqueFd(fds[1])};
  for (const int fd : fds) {
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe");
  }
  return result;
}

// Everything that the child needs after fork, prepared before it. After fork the child only makes
// system calls.
struct ExecPlan {
  std::vector<std::string> programs;  // candidates for argv[0], in order
  std::vector<char*> argv;
  std::vector<char*> shell_argv;  // for a script without "#!", as execvp does
  std::vector<std::string> env_strings;
  std::vector<char*> env;
};

void PlanPrograms(const std::string& name, const Environment& environment, ExecPlan& plan) {
  if (absl::StrContains(name, '/')) {
    plan.programs.push_back(name);
    return;
  }
  const auto path = environment.find("PATH");
  if (name.empty() || path == environment.end()) return;
  for (const absl::string_view dir : absl::StrSplit(path->second, ':')) {
    plan.programs.push_back(absl::StrCat(dir.empty() ? "." : dir, "/", name));
  }
}

ExecPlan MakeExecPlan(const std::vector<std::string>& argv, const Environment& environment,
                      const SecretBlock* secrets) {
  ExecPlan plan;
  PlanPrograms(argv[0], environment, plan);
  static char shell[] = "/bin/sh";
  plan.shell_argv = {shell, nullptr};
  for (const std::string& argument : argv) {
    plan.argv.push_back(const_cast<char*>(argument.c_str()));
    if (plan.argv.size() > 1) plan.shell_argv.push_back(plan.argv.back());
  }
  plan.argv.push_back(nullptr);
  plan.shell_argv.push_back(nullptr);
  const auto shadowed = [&](const std::string& name) {
    if (secrets == nullptr || absl::StartsWith(name, "GPUCTL_")) return false;
    for (const char* entry : secrets->entries()) {
      if (SecretBlock::NameOf(entry) == name) return true;
    }
    return false;
  };
  for (const auto& [name, value] : environment) {
    if (!shadowed(name)) plan.env_strings.push_back(absl::StrCat(name, "=", value));
  }
  for (std::string& entry : plan.env_strings) plan.env.push_back(entry.data());
  if (secrets != nullptr) {
    for (char* entry : secrets->entries()) {
      if (!absl::StartsWith(entry, "GPUCTL_")) plan.env.push_back(entry);
    }
  }
  plan.env.push_back(nullptr);
  return plan;
}

// Tries each place. Returns the most useful errno: that of a program that exists but cannot be
// executed comes before those of places where it does not exist.
int Execute(ExecPlan& plan) {
  int result = ENOENT;
  for (const std::string& program : plan.programs) {
    execve(program.c_str(), plan.argv.data(), plan.env.data());
    if (errno == ENOEXEC) {
      plan.shell_argv[1] = const_cast<char*>(program.c_str());
      execve(plan.shell_argv[0], plan.shell_argv.data(), plan.env.data());
    }
    if (errno != ENOENT && errno != ENOTDIR) result = errno;
  }
  return result;
}

std::string Describe(const ExecError& failure, absl::string_view program) {
  return absl::StrCat(
      failure.step == ExecError::kExecute ? "exec " : "enter the work directory for ", program,
      ": ", strerror(failure.error));
}

// Runs the child from fork to exec.
[[noreturn]] void RunChild(const ChildOptions& options, ExecPlan& plan, pid_t parent, Pipe& hold,
                           Pipe& output, Pipe& error, Pipe& news) {
  close(options.lock_fd);
  news.read_end.reset();
  output.read_end.reset();
  hold.write_end.reset();  // so that the parent's death ends the pipe
  if (!DieWithParent(parent)) _exit(kExitNotExecutable);
  setsid();
  AllowDumps();  // the core limit is still 0; without this we cannot write to /proc/self
  SetOomScore(options.oom_score);
  const int null = open("/dev/null", O_RDWR);
  dup2(null, STDIN_FILENO);
  dup2(output.write_end.get(), STDOUT_FILENO);
  dup2(output.write_end.get(), STDERR_FILENO);
  if (null > STDERR_FILENO) close(null);
  umask(022);
  ResetSignals();
  char go = 0;
  ssize_t got = 0;
  do {
    got = read(hold.read_end.get(), &go, 1);
  } while (got < 0 && errno == EINTR);
  if (got != 1) _exit(kExitNotExecutable);
  ExecError failure{ExecError::kChangeDirectory, 0};
  if (chdir(options.work_dir.c_str()) == 0) {
    if (options.prepare) {
      const Environment environment = options.prepare(news.write_end.get(), hold.read_end.get());
      plan = MakeExecPlan(options.argv, environment, options.secrets);
      ResetSignals();
    }
    setrlimit(RLIMIT_CORE, &options.core_limit);
    if (options.launcher_fd_at > 0) fcntl(error.write_end.get(), F_SETFD, 0);
    failure = {ExecError::kExecute, Execute(plan)};
  } else {
    failure.error = errno;
  }
  const std::string why = Describe(failure, plan.argv[0]);
  const std::string message = absl::StrCat("gpuctl: ", why, "\n");
  SayLastWord(error.write_end.get(), kExecErrorWord, why);
  if (write(STDERR_FILENO, message.data(), message.size()) < 0) _exit(kExitNotExecutable);
  const bool missing = failure.step == ExecError::kExecute && failure.error == ENOENT;
  _exit(missing ? kExitNotFound : kExitNotExecutable);
}

}  // namespace

int ExecuteProgram(const std::vector<std::string>& argv, const Environment& environment,
                   const SecretBlock* secrets) {
  ExecPlan plan = MakeExecPlan(argv, environment, secrets);
  return Execute(plan);
}

absl::StatusOr<Child> Child::Hold(ChildOptions options) {
  if (options.argv.empty())
    return absl::InvalidArgumentError("start the job: the command is empty");
  ASSIGN_OR_RETURN(Pipe hold, MakePipe());
  ASSIGN_OR_RETURN(Pipe output, MakePipe());
  ASSIGN_OR_RETURN(Pipe error, MakePipe());
  Pipe news;
  if (options.prepare) {
    ASSIGN_OR_RETURN(news, MakePipe());
    if (fcntl(news.read_end.get(), F_SETFL, O_NONBLOCK) != 0) {
      return ErrnoStatus(errno, "make a pipe");
    }
  }
  for (const UniqueFd* end : {&output.read_end, &error.read_end}) {
    if (fcntl(end->get(), F_SETFL, O_NONBLOCK) != 0) return ErrnoStatus(errno, "make a pipe");
  }
  GrowPipe(output.read_end.get(), kOutputPipeBytes);
  if (options.launcher_fd_at > 0) {
    options.argv[options.launcher_fd_at] = absl::StrCat(error.write_end.get());
  }
  ExecPlan plan = MakeExecPlan(options.argv, options.environment, options.secrets);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus(errno, "start the job: fork");
  if (pid == 0) RunChild(options, plan, parent, hold, output, error, news);
  Child child;
  child.pid_ = pid;
  child.output_ = std::move(output.read_end);
  child.prepares_ = static_cast<bool>(options.prepare);
  child.news_ = std::move(news.read_end);
  child.hold_ = std::move(hold.write_end);
  child.word_ = std::move(error.read_end);
  return child;
}

absl::Status Child::Release() {
  ssize_t written = 0;
  do {
    written = write(hold_.get(), "g", 1);
  } while (written < 0 && errno == EINTR);
  const int error = errno;
  if (!prepares_) hold_.reset();
  // A child that was killed meanwhile does not read. It is reaped like any other.
  if (written == 1 || error == EPIPE) return absl::OkStatus();
  return ErrnoStatus(error, "release the job");
}

void Child::Continue() {
  while (hold_.valid() && write(hold_.get(), "g", 1) < 0 && errno == EINTR) {
  }
  hold_.reset();
}

ChildWord Child::TakeLastWord() {
  char buffer[kMostWordBytes];
  const ssize_t got = read(word_.get(), buffer, sizeof(buffer));
  word_.reset();
  ChildWord word;
  if (got <= 1) return word;
  absl::string_view text(buffer + 1, static_cast<size_t>(got) - 1);
  text = text.substr(0, text.find('\0'));
  (buffer[0] == kExecErrorWord ? word.exec_error : word.detail) = std::string(text);
  return word;
}

}  // namespace gpuctl
