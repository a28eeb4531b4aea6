// gpuctl ssh: a shell on a run's machine, and what lets the user's own ssh reach it.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/base/port_pair.h"
#include "client/node/explain_error.h"
#include "client/node/make_links.h"
#include "client/programs/node_scripts.h"
#include "client/reach/local_port.h"
#include "client/reach/open_ssh.h"
#include "client/reach/run_script.h"
#include "client/reach/ssh_files.h"
#include "client/runs/context.h"
#include "client/runs/find_run.h"
#include "client/terminal/console.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

struct SshFlags {
  std::string reference, stdio, prepare;
  std::vector<std::string> forwards;
  bool setup = false, yes = false;
};

// Is ssh's way to the machine: ProxyCommand.
absl::StatusOr<int> Stdio(CommandContext& context, const std::string& reference) {
  FollowLifeline();
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  ASSIGN_OR_RETURN(const RunRow row, store->Get(reference));
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  absl::StatusOr<UniqueFd> socket = links->Dial();
  if (!socket.ok()) return ExplainLinkError(socket.status(), row.target);
  // The connection's end is no error here: ssh says what it thinks of it.
  (void)RelayStdio(*std::move(socket));
  ExitAtOnce(context, kExitOk);
}

// Writes the block of the host that ssh is about to look up.
absl::StatusOr<int> Prepare(CommandContext& context, absl::string_view host) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  if (!absl::ConsumePrefix(&host, kSshHostPrefix) || !IsSshWord(host)) {
    return UsageError(absl::StrCat("ssh: no run can have the host's name \"", host, "\""),
                      "ssh gpuctl-RUN; gpuctl ps -a lists the runs");
  }
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  ASSIGN_OR_RETURN(const RunRow row, store->Get(host));
  if (NeedsLoginFirst(paths, row)) {
    ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
    if (const absl::Status status = links->TryLogin(); !status.ok()) {
      return ExplainLinkError(status, row.target);
    }
  }
  ForgetOldSshHosts(paths, context.NowMs());
  RETURN_IF_ERROR(WriteSshHost(paths, host, row).status());
  return kExitOk;
}

absl::StatusOr<int> Setup(CommandContext& context, bool yes) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  RETURN_IF_ERROR(WriteSshIncludeFile(paths));
  ASSIGN_OR_RETURN(const std::string line, SshIncludeLine(paths));
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  ASSIGN_OR_RETURN(const std::vector<RunRow> live, store->List(/*live_only=*/true));
  for (const RunRow& row : live) ListSshHost(paths, row);
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') {
    return absl::FailedPreconditionError(
        "ssh --setup: HOME is not set, so there is no ~/.ssh/config");
  }
  const std::string config = JoinPath(home, ".ssh/config");
  bool there = HasLineInFront(config, line);
  if (!there && !yes && context.CanAsk() && !context.json()) {
    ASSIGN_OR_RETURN(
        yes, context.AskYesNo(absl::StrCat("Put the line \"", line, "\" in front of ", config, "?"),
                              "nothing was written", "there is nobody to ask"));
  }
  if (!there && yes) {
    RETURN_IF_ERROR(AddLineInFront(config, line).status());
    there = true;
  }
  if (context.json()) {
    context.PrintJson({{"line", line}, {"config", config}, {"installed", there}});
    return kExitOk;
  }
  context.PrintLine(line);
  context.Say(there ? absl::StrCat(config, " has this line; ssh gpuctl-RUN works")
                    : absl::StrCat("this line, in front of all others of ", config,
                                   ", makes ssh gpuctl-RUN work"));
  if (!there) context.Hint("gpuctl ssh --setup -y puts it there");
  return kExitOk;
}

// Returns the arguments of -L, one for each of `forwards`. What has the form of ssh's own stays.
absl::StatusOr<std::vector<std::string>> ForwardArguments(
    CommandContext& context, const NodeTarget& target, const std::vector<std::string>& forwards) {
  std::vector<std::string> arguments, ours;
  for (const std::string& forward : forwards) {
    const bool of_ssh =
        absl::StrContains(forward, "/") || std::count(forward.begin(), forward.end(), ':') > 1;
    (of_ssh ? arguments : ours).push_back(forward);
  }
  absl::StatusOr<std::vector<PortPair>> pairs = ParsePortPairs(ours);
  if (!pairs.ok()) {
    return UsageError(absl::StrCat("-L: ", pairs.status().message()),
                      "gpuctl ssh RUN -L 6006, or -L 6006:8080 for port 8080 here");
  }
  RETURN_IF_ERROR(ChooseLocalPorts(target, *pairs));
  for (const PortPair& pair : *pairs) {
    context.Say(absl::StrCat("port ", pair.port, " there is 127.0.0.1:", pair.local, " here"));
    arguments.push_back(ForwardArgument(pair));
  }
  return arguments;
}

absl::StatusOr<int> OpenShell(CommandContext& context, const RunRow& row, const SshFlags& flags) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const RunPlace place, PlaceOf(paths, row));
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  const bool has_command = context.after_dashes.has_value() && !context.after_dashes->empty();
  const bool terminal = isatty(STDIN_FILENO) != 0 && (!has_command || isatty(STDOUT_FILENO) != 0);
  const std::string script =
      has_command ? CommandScript(place, *context.after_dashes, CommandStyle::kTerminal)
                  : ShellScript(place, terminal);
  RETURN_IF_ERROR(CheckScriptSize("ssh", script));
  ASSIGN_OR_RETURN(std::vector<std::string> argv, SshCommandFor(context, row, *links));
  ASSIGN_OR_RETURN(const std::vector<std::string> forwards,
                   ForwardArguments(context, row.target, flags.forwards));
  argv.push_back(terminal ? "-t" : "-T");
  if (has_command) argv.insert(argv.end(), {"-o", "LogLevel=ERROR"});
  for (const std::string& forward : forwards) argv.insert(argv.end(), {"-L", forward});
  argv.insert(argv.end(), {SshHostOf(row), ShellCommand(script)});
  return Become(argv);
}

}  // namespace

absl::StatusOr<int> CmdSsh(CommandContext& context, std::vector<std::string> args) {
  SshFlags flags;
  VerbParser parser(
      context, "ssh [RUN] [FLAGS] [-- CMD...] | --setup [-y]",
      "Opens a shell in the job's work directory, with the job's environment, or runs a\n"
      "command there on a terminal. It is the ssh of this computer, so ~. and the like\n"
      "work; its own errors have code 255.",
      "  gpuctl ssh amber-fox-3\n"
      "  gpuctl ssh amber-fox-3 -L 6006 -- tensorboard --logdir outputs\n"
      "  gpuctl ssh --setup        then: ssh gpuctl-amber-fox-3, scp, sftp, rsync, VS Code");
  const FlagSet::Flag run = parser.Option("RUN", flags.reference, kRunOrNewestLive);
  parser
      .Option("-L", flags.forwards,
              "PORT or PORT:LOCALPORT: forward a port as gpuctl forward\ndoes; or as ssh has it")
      .OneValueEach();
  parser.Switch(
      "--setup", flags.setup,
      "Print the line of ~/.ssh/config with which ssh knows\ngpuctl-RUN; asks before it writes");
  parser.Switch("-y,--yes", flags.yes, "With --setup: write it");
  const FlagSet::Flag stdio =
      parser.Option("--stdio", flags.stdio, "For ssh: ProxyCommand").Hidden();
  const FlagSet::Flag prepare =
      parser.Option("--prepare", flags.prepare, "For ssh: Match exec").Hidden();
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  if (stdio.given()) return Stdio(context, flags.stdio);
  if (prepare.given()) return Prepare(context, flags.prepare);
  if (flags.setup) {
    if (run.given() || !flags.forwards.empty() || context.after_dashes.has_value()) {
      return UsageError("ssh: --setup is for all runs, and stands alone", "gpuctl ssh --setup");
    }
    return Setup(context, flags.yes);
  }
  if (flags.yes) return UsageError("ssh: -y goes with --setup", "gpuctl ssh --setup -y");
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  if (run.given()) {
    RETURN_IF_ERROR(
        CheckNoBatch(context, {flags.reference}, "gpuctl ssh $-1 opens a shell for one run"));
  }
  ASSIGN_OR_RETURN(const RunRow row, FindRun(context, *store, run, flags.reference));
  return OpenShell(context, row, flags);
}

}  // namespace gpuctl
