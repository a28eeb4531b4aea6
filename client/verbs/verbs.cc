// The table of verbs, the help that shows it, and the call of one of them from a command line.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <exception>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/exit_codes.h"
#include "client/base/left_thread.h"
#include "client/base/other_tools.h"
#include "client/base/simulated_clock.h"
#include "client/base/suggest.h"
#include "client/terminal/console.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/describe_verbs.h"
#include "client/verbs/verb.h"
#include "client/verbs/verbs.h"
#include "client/warm/holder.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr char kVersion[] = GPUCTL_VERSION;

std::string TopLevelHelp() {
  std::string help =
      "gpuctl runs a training job on a GPU machine and keeps a copy of its output here.\n\n"
      "Usage: gpuctl VERB [ARGUMENTS] [FLAGS]\n";
  std::string group;
  for (const Verb& verb : Verbs()) {
    if (group != verb.group) {
      group = verb.group;
      absl::StrAppend(&help, "\n", group, "\n");
    }
    absl::StrAppend(&help, absl::StrFormat("  %-13s%s\n", verb.name, verb.summary));
  }
  absl::StrAppend(&help,
                  "\nEverywhere: -o table|wide|json|jsonl, --json, -q, --trace, --no-color, -h\n"
                  "gpuctl VERB --help explains one verb. Try: gpuctl launch -- echo hello\n");
  return help;
}

// Takes the flags that stand before the verb out of `args`, to put them behind it.
std::vector<std::string> TakeLeadingFlags(std::vector<std::string>& args) {
  std::vector<std::string> flags;
  while (!args.empty() && absl::StartsWith(args[0], "-")) {
    const bool takes_value = args[0] == "-o" || args[0] == "--output";
    const size_t count = takes_value && args.size() > 1 ? 2 : 1;
    flags.insert(flags.end(), args.begin(), args.begin() + static_cast<int64_t>(count));
    args.erase(args.begin(), args.begin() + static_cast<int64_t>(count));
  }
  return flags;
}

// The process of a warm link; nobody reads what it would say.
absl::StatusOr<int> HoldLink() {
  std::string text;
  char some[4096];
  for (ssize_t count = 0; (count = read(STDIN_FILENO, some, sizeof(some))) > 0;) {
    text.append(some, static_cast<size_t>(count));
    if (text.size() > (64 << 10)) break;
  }
  ASSIGN_OR_RETURN(const HolderRequest request, ParseHolderRequest(text));
  RETURN_IF_ERROR(RunHolder(request));
  return kExitOk;
}

bool Contains(const std::vector<std::string>& list, absl::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

// Reads the output format, for errors that are found before a verb reads the flags.
void ReadFormat(const std::vector<std::string>& flags, CommandContext& context) {
  for (size_t i = 0; i < flags.size(); ++i) {
    const std::string& flag = flags[i];
    const std::string value = i + 1 < flags.size() ? flags[i + 1] : "";
    const bool output = flag == "-o" || flag == "--output";
    if (flag == "--json" || flag == "-ojson" || flag == "--output=json" ||
        (output && value == "json")) {
      context.format = OutputFormat::kJson;
    } else if (flag == "-ojsonl" || flag == "--output=jsonl" || (output && value == "jsonl")) {
      context.format = OutputFormat::kJsonLines;
    }
  }
}

absl::StatusOr<int> Dispatch(CommandContext& context, std::vector<std::string> args) {
  const auto dashes = std::find(args.begin(), args.end(), "--");
  if (dashes != args.end()) {
    context.after_dashes.emplace(dashes + 1, args.end());
    args.erase(dashes, args.end());
  }
  ReadFormat(args, context);
  const std::vector<std::string> leading = TakeLeadingFlags(args);
  if (args.empty() || args[0] == "help") {
    if (Contains(leading, "--version") || Contains(leading, "-V")) {
      context.PrintLine(absl::StrCat("gpuctl ", kVersion));
      return kExitOk;
    }
    if (args.size() < 2) {
      const bool asked = !args.empty() || Contains(leading, "-h") || Contains(leading, "--help");
      if (!asked && !leading.empty()) {
        return UsageError(absl::StrCat("no verb behind ", leading.back()),
                          "gpuctl --help lists the verbs");
      }
      context.PrintOwnText(TopLevelHelp());
      return asked ? kExitOk : kExitUsage;
    }
    args = {args[1], "--help"};  // gpuctl help VERB
  }
  if (args[0] == kHolderVerb) return HoldLink();
  std::vector<std::string> names;
  for (const Verb& verb : Verbs()) {
    names.push_back(verb.name);
    if (args[0] != verb.name) continue;
    args.erase(args.begin());
    args.insert(args.begin(), leading.begin(), leading.end());
    return verb.run(context, std::move(args));
  }
  const std::string ours = OursForOthers(args[0]);
  return UsageError(absl::StrCat("unknown verb \"", args[0], "\"",
                                 ours.empty() ? DidYouMean(args[0], names) : ours),
                    "gpuctl --help lists the verbs");
}

// Dispatches, and turns an exception, which no code of ours throws on purpose, into an error.
absl::StatusOr<int> DispatchOrExplain(CommandContext& context, std::vector<std::string> args) {
  std::string what = "unknown exception";
  try {
    return Dispatch(context, std::move(args));
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
  }
  return WithExitCode(WithHint(absl::InternalError(absl::StrCat("a bug of ours: ", what)),
                               "please report it with what you typed and gpuctl --version"),
                      kExitBug);
}

}  // namespace

const std::vector<Verb>& Verbs() {
  static const std::vector<Verb>* const verbs = new std::vector<Verb>{
      {"launch", "Run", "start a run and show it", CmdLaunch},
      {"attach", "Run", "show a run live; Ctrl-C leaves it running", CmdAttach},
      {"stop", "Run", "end a run's job, with time to save", CmdStop},
      {"resume", "Run", "start a run again from its newest checkpoint here", CmdResume},
      {"wait", "Run", "wait for runs; for scripts", CmdWait},
      {"submit", "Batch", "many runs at once, with parameters of their own", CmdSubmit},
      {"queue", "Batch", "the batches: what runs, what waits and why, results", CmdQueue},
      {"cancel", "Batch", "take runs out of a batch", CmdCancel},
      {"ps", "Look", "list the runs", CmdPs},
      {"top", "Look", "all live runs on one screen", CmdTop},
      {"dashboard", "Look", "all runs on a page in the browser", CmdDashboard},
      {"logs", "Look", "print a run's output", CmdLogs},
      {"metrics", "Look", "a run's loss and speed: table, curve, CSV", CmdMetrics},
      {"show", "Look", "what is recorded of a run", CmdShow},
      {"diff", "Look", "how two runs differ", CmdDiff},
      {"tag", "Look", "words and a note to find a run again", CmdTag},
      {"pull", "Results", "bring checkpoints and files home, verified", CmdPull},
      {"verify", "Results", "check what came home", CmdVerify},
      {"cp", "Results", "copy a file or folder to or from a run", CmdCp},
      {"sync", "Machine", "send a run what changed in its work directory", CmdSync},
      {"exec", "Machine", "run a command beside a run's job", CmdExec},
      {"ssh", "Machine", "a shell on a run's machine; ssh gpuctl-RUN", CmdSsh},
      {"forward", "Machine", "a port of a run's machine, here", CmdForward},
      {"extend", "Machine", "more time for a run that is not over", CmdExtend},
      {"down", "Machine", "stop a run's job, and end its machine's bill", CmdDown},
      {"rm", "Machine", "remove what an ended run left there", CmdRm},
      {"prune", "Machine", "remove what all ended runs left", CmdPrune},
      {"prepare", "Train", "make training data of rows of text", CmdPrepare},
      {"preflight", "Train", "try a run file on this computer; memory, time, GPU", CmdPreflight},
      {"train", "Train", "train on this computer, in this terminal", CmdTrain},
      {"eval", "Train", "the held-out loss of a model", CmdEval},
      {"generate", "Train", "text of a model or of a pulled checkpoint", CmdGenerate},
      {"merge", "Train", "an adapter into its model's weights", CmdMerge},
      {"export", "Train", "a model for llama.cpp, an adapter for MLX", CmdExport},
      {"inspect", "Train", "verify a checkpoint, list its tensors", CmdInspect},
      {"offers", "Rent", "what could be rented, cheapest first", CmdOffers},
      {"instances", "Rent", "everything that bills now, and whose it is", CmdInstances},
      {"price", "Rent", "higher prices that hosts announce: list, accept, refuse", CmdPrice},
      {"cost", "Rent", "what rented machines cost, by run, GPU, provider or day", CmdCost},
      {"volumes", "Rent", "storage that outlives machines, and its price", CmdVolumes},
      {"reap", "Rent", "end machines that bill and nobody wants", CmdReap},
      {"keep", "Rent", "one pass of reap, with a log of what it did", CmdKeep},
      {"login", "Rent", "take a provider's key, check it, keep it", CmdLogin},
      {"node", "Help", "the programs for machines: list them, fetch more", CmdNode},
      {"doctor", "Help", "check this laptop and a machine; name the fix", CmdDoctor},
      {"init", "Help", "a run file guessed from a directory", CmdInit},
      {"config", "Help", "the defaults for launches, and where each comes from", CmdConfig},
      {"run-schema", "Help", "the JSON Schema of the run file, for editors", CmdRunSchema},
      {"json-schema", "Help", "the JSON Schemas of what -o json prints", CmdJsonSchema},
      {"completion", "Help", "let the shell complete verbs, flags and names", CmdCompletion},
      {"debug", "Help", "look inside: debug job, debug replay", CmdDebug},
  };
  return *verbs;
}

VerbText DescribeVerb(CommandContext& context, const std::string& name) {
  VerbText text;
  context.describe = &text;
  for (const Verb& verb : Verbs()) {
    if (name == verb.name) (void)verb.run(context, {});
  }
  context.describe = nullptr;
  return text;
}

namespace {

int RunToExitCode(CommandContext& context, const std::vector<std::string>& arguments) {
  const absl::StatusOr<int> code = DispatchOrExplain(context, arguments);
  if (code.ok()) {
    const absl::Status output = OutputStatus();
    if (output.ok()) return *code;
    // Print to stderr, also with --json: stdout takes no more.
    context.format = OutputFormat::kTable;
    context.Warn(output.message());
    return *code == kExitOk ? kExitFailed : *code;
  }
  context.PrintError(code.status());
  if (context.json() && !OutputStatus().ok()) {
    // The document found no room.
    context.format = OutputFormat::kTable;
    context.PrintError(code.status());
  }
  return ExitCodeOf(code.status());
}

}  // namespace

int RunCommandLine(int argc, char** argv) {
  // A write to a reader that is gone, or past a limit of size, returns an error instead.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  CommandContext context(CommandClock());
  context.unknown_hint = [&context](absl::string_view reference) {
    return HintForBatch(context, reference);
  };
  const int code =
      RunToExitCode(context, std::vector<std::string>(argv + 1, argv + std::max(argc, 1)));
  if (LeavableThreadsRun()) ExitAtOnce(context, code);
  return code;
}

}  // namespace gpuctl
