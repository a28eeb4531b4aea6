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
#include "client/base/shell_quote.h"
#include "client/base/wake_pipe.h"
#include "client/node/explain_error.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/runs/context.h"
#include "client/spec/job_spec.h"
#include "client/streams/mirror.h"
#include "client/terminal/console.h"
#include "client/verbs/job_shell.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/job/job_layout.h"

namespace gpuctl {
namespace {

// Returns the shell command that runs `argv` in the job's work directory with the job's
// environment. Secrets are not part of it, because they are stored nowhere.
std::string RemoteCommandLine(const RunRow& row, const gpuctl::v1::JobSpec& spec, int attempt,
                              const std::string& root, bool limited,
                              const std::vector<std::string>& argv) {
  // Tells a node with limits that the user is in contact; the user's command does not do that.
  std::string line;
  if (limited) {
    line = absl::StrCat(ShellQuote(RootPaths(root).bin_current), "/gpuctl-agent contact --root ",
                        ShellQuote(root), " --pid $$ </dev/null >/dev/null 2>&1 & ");
  }
  absl::StrAppend(&line, EnterJob(row, spec, attempt, root), "exec");
  for (const std::string& word : argv) absl::StrAppend(&line, " ", ShellQuote(word));
  return line;
}

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

}  // namespace

absl::StatusOr<int> CmdExec(CommandContext& context, std::vector<std::string> args) {
  std::string reference;
  VerbParser parser(
      context, "exec RUN [FLAGS] -- CMD...",
      "Runs a command in the job's work directory, with the job's environment. Input,\n"
      "output and exit code pass through unchanged.",
      "  gpuctl exec amber-fox-3 -- nvidia-smi\n"
      "  gpuctl exec amber-fox-3 -- tar c outputs > outputs.tar");
  parser.Option("RUN", reference, "Name, id, or the beginning of one").Required();
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  if (!context.after_dashes.has_value() || context.after_dashes->empty()) {
    return UsageError("exec: no command", "put it behind --: gpuctl exec RUN -- ls -l");
  }
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  ASSIGN_OR_RETURN(const RunRow row, store->Get(reference));
  ASSIGN_OR_RETURN(const StoredSpec stored, ParseStoredSpec(row.spec_json));
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadMirrorLifecycle(paths.MirrorDir(row.run_id)));
  const LifecycleEvent* last = LastStateEvent(lifecycle);
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  std::string root;
  bool limited = false;
  {
    ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context, *links, row.target));
    ASSIGN_OR_RETURN(const gpuctl::v1::HelloReply node, calls.Hello());
    root = node.root();
    limited = node.has_limits();
  }
  const std::string line = RemoteCommandLine(row, stored.spec, last == nullptr ? 1 : last->attempt,
                                             root, limited, *context.after_dashes);
  if (line.size() > kLongestArgument) {
    return UsageError(absl::StrCat("exec: the command and the job's environment have ", line.size(),
                                   " bytes; ", kLongestArgument, " fit"),
                      "put it into a file: gpuctl cp FILE RUN:");
  }
  absl::StatusOr<std::unique_ptr<RemoteCommand>> command = links->RunStreaming(
      line, [&context](absl::string_view text) { context.PrintJobErrorBytes(text); });
  if (!command.ok()) return ExplainLinkError(command.status(), row.target);
  RETURN_IF_ERROR(Relay(context, (*command)->fd()));
  const absl::StatusOr<int> code = (*command)->Wait();
  if (!code.ok()) return ExplainLinkError(code.status(), row.target);
  return *code;
}

}  // namespace gpuctl
