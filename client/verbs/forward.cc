// gpuctl forward: ports of a run's machine, here.
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/port_pair.h"
#include "client/base/wake_pipe.h"
#include "client/reach/port_forward.h"
#include "client/runs/context.h"
#include "client/runs/find_run.h"
#include "client/terminal/console.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "common/process/signal_pipe.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(1);

void TellReady(const CommandContext& context, const RunRow& row,
               const std::vector<PortPair>& ready) {
  for (const PortPair& pair : ready) {
    if (context.json()) {
      context.PrintJson({{"run_id", row.run_id},
                         {"name", row.name},
                         {"port", pair.port},
                         {"local_port", pair.local},
                         {"url", LocalUrl(pair)}});
    } else {
      context.PrintLine(
          context.quiet ? LocalUrl(pair)
                        : absl::StrCat("port ", pair.port, " of ", row.name, ": ", LocalUrl(pair)));
    }
  }
}

// Forwards until a signal comes, or for ever.
absl::StatusOr<int> Forward(CommandContext& context, const RunRow& row,
                            std::vector<PortPair> pairs) {
  ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGINT, SIGTERM, SIGHUP}));
  PortForward forward(context, row, std::move(pairs));
  RETURN_IF_ERROR(forward.Start());
  bool told = false;
  while (true) {
    const PortForward::News news = forward.Take();
    for (const std::string& notice : news.notices) context.Say(notice);
    TellReady(context, row, news.ready);
    if (!news.ready.empty() && !std::exchange(told, true)) context.Say("Ctrl-C ends it");
    if (!OutputStatus().ok()) break;
    if (news.done) return news.result;
    WaitForNews({forward.wake_fd()}, signals, absl::InfiniteDuration());
    const std::vector<int> came = signals.Take();
    if (came.empty()) continue;
    const int code = came.front() == SIGINT ? int{kExitOk} : 128 + came.front();
    if (!forward.Cancel(kPatience)) ExitAtOnce(context, code);
    return code;
  }
  if (!forward.Cancel(kPatience)) ExitAtOnce(context, kExitFailed);
  return kExitFailed;
}

}  // namespace

absl::StatusOr<int> CmdForward(CommandContext& context, std::vector<std::string> args) {
  std::string first;
  std::vector<std::string> words;
  VerbParser parser(
      context, "forward [RUN] PORT[:LOCALPORT]... [FLAGS]",
      "Makes ports of a run's machine ports of this computer, for its own programs only\n"
      "(127.0.0.1), until Ctrl-C. Goes on by itself after a broken connection.",
      "  gpuctl forward amber-fox-3 6006          TensorBoard\n"
      "  gpuctl forward amber-fox-3 8888:9999     Jupyter, at port 9999 here\n\n"
      "Without LOCALPORT it is the same number, or the next free one. A run whose name\n"
      "is a number needs its id here. The first line of stdout tells that it works.");
  const FlagSet::Flag run = parser.Option("RUN", first, kRunOrNewestLive);
  parser.Option("PORT", words, "Port there, and here if it shall be another");
  parser.Quiet("Print the addresses alone");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  if (run.given()) words.insert(words.begin(), first);
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  absl::StatusOr<RunRow> row = absl::NotFoundError("");
  const bool named = !words.empty() && !ParsePortPair(words.front()).ok();
  if ((words.size() == 1 && named) || words.empty()) {
    return UsageError("forward: no port", "for example gpuctl forward RUN 6006");
  }
  if (named) {
    RETURN_IF_ERROR(
        CheckNoBatch(context, {words.front()}, "gpuctl forward $-1 PORT is for one run"));
    row = store->Get(words.front());
    words.erase(words.begin());
  }
  const absl::StatusOr<std::vector<PortPair>> pairs = ParsePortPairs(words);
  if (!pairs.ok()) {
    return UsageError(absl::StrCat("forward: ", pairs.status().message()),
                      "for example gpuctl forward RUN 6006, or 6006:8080 for port 8080 here");
  }
  if (!named) row = FindNewestLiveRun(context, *store);
  RETURN_IF_ERROR(row.status());
  return Forward(context, *row, *pairs);
}

}  // namespace gpuctl
