// gpuctl exec: run a command beside a run's job.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/wake_pipe.h"
#include "client/follow/output_hint.h"
#include "client/node/explain_error.h"
#include "client/node/make_links.h"
#include "client/programs/node_scripts.h"
#include "client/reach/open_ssh.h"
#include "client/reach/run_script.h"
#include "client/runs/context.h"
#include "client/runs/find_run.h"
#include "client/terminal/console.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

// Reads what is available from `from`; "" at its end.
std::string ReadSome(int from) {
  std::string bytes(64 << 10, '\0');
  ssize_t count = 0;
  do {
    count = read(from, bytes.data(), bytes.size());
  } while (count < 0 && errno == EINTR);
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  return bytes;
}

absl::Status Print(const Console& console, absl::string_view bytes) {
  const absl::Status status = console.PrintJobBytes(bytes).status();
  // UNAVAILABLE would mean that the node is gone; here stdout is.
  return absl::IsUnavailable(status) ? absl::FailedPreconditionError(status.message()) : status;
}

// Passes stdin on to a command, on a thread of its own: the command may wait until somebody reads
// its output.
class InputRelay {
 public:
  // `remote` is a blocking socket to the command.
  explicit InputRelay(int remote) : remote_(remote) {}
  ~InputRelay() { (void)Stop(); }

  absl::Status Start() {
    RETURN_IF_ERROR(stop_.Open());
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  // Passes on nothing more. Returns the error that ended the reading of stdin, if any.
  absl::Status Stop() {
    if (thread_.joinable()) {
      stop_.Wake();
      shutdown(remote_, SHUT_RDWR);  // frees a thread that waits for room
      thread_.join();
    }
    return error_ == 0 ? absl::OkStatus() : ErrnoStatus(error_, "read the input");
  }

 private:
  void Run() {
    std::string bytes(64 << 10, '\0');
    while (WaitForInput()) {
      const ssize_t count = read(STDIN_FILENO, bytes.data(), bytes.size());
      if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      // nohup's stdin cannot be read, and neither can a terminal that is gone.
      if (count < 0 && errno != EBADF && errno != EIO) error_ = errno;
      if (count <= 0) break;
      // A command that does not read its input is no error.
      const absl::string_view some(bytes.data(), static_cast<size_t>(count));
      if (!WriteAll(remote_, some, "the command").ok()) break;
    }
    // After an error the output ends too: half of an input must not pass for all of it.
    shutdown(remote_, error_ == 0 ? SHUT_WR : SHUT_RD);
  }

  // Returns false when there is nothing more to pass on.
  bool WaitForInput() {
    pollfd polled[2] = {{STDIN_FILENO, POLLIN, 0}, {stop_.fd(), POLLIN, 0}};
    while (poll(polled, 2, -1) < 0) {
      if (errno == EINTR) continue;
      error_ = errno;
      return false;
    }
    return polled[1].revents == 0;
  }

  const int remote_;
  WakePipe stop_;
  int error_ = 0;  // the thread's, until Stop
  std::thread thread_;
};

// Copies stdin to the command and the command's output to stdout, until the output ends.
absl::Status Relay(const Console& console, int remote) {
  InputRelay input(remote);
  RETURN_IF_ERROR(input.Start());
  for (;;) {
    const std::string output = ReadSome(remote);
    if (output.empty()) return input.Stop();
    RETURN_IF_ERROR(Print(console, output));
  }
}

// What the command wrote to stderr last. Any thread may add to it.
class LastErrors {
 public:
  void Add(absl::string_view text) {
    MutexLock lock(mutex_);
    absl::StrAppend(&text_, text);
    if (text_.size() > kHintBytes) text_.erase(0, text_.size() - kHintBytes);
  }
  std::string text() {
    MutexLock lock(mutex_);
    return text_;
  }

 private:
  Mutex mutex_;
  std::string text_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<int> CmdExec(CommandContext& context, std::vector<std::string> args) {
  std::string reference;
  bool terminal = false;
  VerbParser parser(
      context, "exec [RUN] [FLAGS] -- CMD...",
      "Runs a command in the job's work directory, with the job's environment. Input,\n"
      "output and exit code pass through unchanged. Ctrl-C leaves the command running\n"
      "there; with -t it reaches the command.",
      "  gpuctl exec amber-fox-3 -- nvidia-smi\n"
      "  gpuctl exec amber-fox-3 -- tar c outputs > outputs.tar\n"
      "  gpuctl exec -t -- htop");
  const FlagSet::Flag run = parser.Option("RUN", reference, kRunOrNewestLive);
  parser.Switch("-t,--tty", terminal,
                "Give the command a terminal; uses the ssh of this\ncomputer, whose own errors "
                "have code 255");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  if (!context.after_dashes.has_value() || context.after_dashes->empty()) {
    return UsageError("exec: no command", "put it behind --: gpuctl exec RUN -- ls -l");
  }
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  if (run.given()) {
    RETURN_IF_ERROR(
        CheckNoBatch(context, {reference}, "gpuctl exec $-1 -- COMMAND is for one run"));
  }
  ASSIGN_OR_RETURN(const RunRow row, FindRun(context, *store, run, reference));
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const RunPlace place, PlaceOf(paths, row));
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  if (terminal) {
    const std::string line = CommandScript(place, *context.after_dashes, CommandStyle::kTerminal);
    RETURN_IF_ERROR(CheckScriptSize("exec", line));
    ASSIGN_OR_RETURN(std::vector<std::string> argv, SshCommandFor(context, row, *links));
    argv.insert(argv.end(), {"-tt", "-o", "LogLevel=ERROR", SshHostOf(row), ShellCommand(line)});
    return Become(argv);
  }
  const std::string line = CommandScript(place, *context.after_dashes, CommandStyle::kPipes);
  RETURN_IF_ERROR(CheckScriptSize("exec", line));
  LastErrors last;
  absl::StatusOr<std::unique_ptr<RemoteCommand>> command =
      links->RunStreaming(line, [&context, &last](absl::string_view text) {
        context.PrintJobErrorBytes(text);
        last.Add(text);
      });
  if (!command.ok()) return ExplainLinkError(command.status(), row.target);
  RETURN_IF_ERROR(Relay(context, (*command)->fd()));
  const absl::StatusOr<int> code = (*command)->Wait();
  if (!code.ok()) return ExplainLinkError(code.status(), row.target);
  if (const std::string hint = HintOfOutput(last.text()); *code != 0 && !hint.empty())
    context.Hint(hint);
  return *code;
}

}  // namespace gpuctl
