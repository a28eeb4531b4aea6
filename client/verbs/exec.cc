// gpuctl exec: a command beside a run's job.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/shell_quote.h"
#include "client/node/explain_error.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/runs/context.h"
#include "client/streams/mirror.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/job/job_layout.h"

namespace gpuctl {
namespace {

// In the job's work directory, with the environment that the job was given (secrets are nowhere to
// be read from, so they are not part of it).
std::string RemoteCommandLine(const RunRow& row, const gpuctl::v1::JobSpec& spec, int attempt,
                              const std::string& root, bool limited,
                              const std::vector<std::string>& argv) {
  const JobPaths job = RootPaths(root).Job(row.job_id);
  // A node with limits is told that somebody is here; the command itself is no program of ours.
  std::string line;
  if (limited) {
    line = absl::StrCat(ShellQuote(RootPaths(root).bin_current), "/gpuctl-agent contact --root ",
                        ShellQuote(root), " --pid $$ </dev/null >/dev/null 2>&1 & ");
  }
  absl::StrAppend(&line, "cd ", ShellQuote(job.work), " || exit 126; export");
  const auto add = [&line](const std::string& name, const std::string& value) {
    absl::StrAppend(&line, " ", name, "=", ShellQuote(value));
  };
  for (const auto& [name, value] : spec.env()) add(name, value);
  add("GPUCTL_RUN_ID", row.run_id);
  add("GPUCTL_JOB_ID", row.job_id);
  add("GPUCTL_ATTEMPT", absl::StrCat(std::max(attempt, 1)));
  add("GPUCTL_CHECKPOINT_DIR", job.checkpoints);
  absl::StrAppend(&line, "; exec");
  for (const std::string& word : argv) absl::StrAppend(&line, " ", ShellQuote(word));
  return line;
}

absl::Status Copy(int from, int to, bool& ended) {
  char buffer[64 << 10];
  const ssize_t count = read(from, buffer, sizeof(buffer));
  if (count < 0 && errno == EINTR) return absl::OkStatus();
  if (count <= 0) {
    ended = true;
    return absl::OkStatus();
  }
  return WriteAll(to, absl::string_view(buffer, static_cast<size_t>(count)), "the other end");
}

// stdin to the command and the command's output to stdout, until that ends.
absl::Status Relay(int remote) {
  bool input_ended = false, output_ended = false;
  while (!output_ended) {
    pollfd polled[2] = {{remote, POLLIN, 0}, {input_ended ? -1 : STDIN_FILENO, POLLIN, 0}};
    if (poll(polled, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "wait for the command");
    }
    if (polled[0].revents != 0) RETURN_IF_ERROR(Copy(remote, STDOUT_FILENO, output_ended));
    if (!input_ended && polled[1].revents != 0) {
      // A command that does not read its input is no error.
      if (!Copy(STDIN_FILENO, remote, input_ended).ok()) input_ended = true;
      if (input_ended) shutdown(remote, SHUT_WR);
    }
  }
  return absl::OkStatus();
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
  parser.app().add_option("RUN", reference, "Name, id, or the beginning of one")->required();
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(std::move(args)));
  if (!go_on) return kExitOk;
  if (!context.after_dashes.has_value() || context.after_dashes->empty()) {
    return UsageError("exec: no command", "put it behind --: gpuctl exec RUN -- ls -l");
  }
  ASSIGN_OR_RETURN(const RunRow row, FindRun(context, reference));
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
  absl::StatusOr<std::unique_ptr<RemoteCommand>> command = links->RunStreaming(
      line, [](absl::string_view text) { (void)WriteAll(STDERR_FILENO, text, "stderr"); });
  if (!command.ok()) return ExplainLinkError(command.status(), row.target);
  RETURN_IF_ERROR(Relay((*command)->fd()));
  const absl::StatusOr<int> code = (*command)->Wait();
  if (!code.ok()) return ExplainLinkError(code.status(), row.target);
  return *code;
}

}  // namespace gpuctl
