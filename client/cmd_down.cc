// gpuctl down: end a run's hold on its machine. On local and ssh nothing is rented, so that means
// its job.
#include <unistd.h>

#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/cmd.h"
#include "client/follow_run.h"
#include "client/stop_run.h"
#include "client/verb_parser.h"
#include "common/status_macros.h"

namespace gpuctl {
namespace {

absl::StatusOr<bool> Confirm(const CommandContext& context, const std::string& question) {
  if (context.json() || isatty(STDIN_FILENO) == 0) {
    return UsageError("down asks before it ends a job, and there is nobody to ask", "add -y");
  }
  PrintProgress(context, absl::StrCat(question, " [y/N]"));
  std::string answer;
  std::getline(std::cin, answer);
  answer = absl::AsciiStrToLower(absl::StripAsciiWhitespace(answer));
  return answer == "y" || answer == "yes";
}

}  // namespace

absl::StatusOr<int> CmdDown(CommandContext& context, std::vector<std::string> args) {
  std::vector<std::string> references;
  bool all = false, yes = false;
  VerbParser parser(
      context, "down RUN... | --all [FLAGS]",
      "Ends what runs keep running and bill. For the providers local and ssh nothing\n"
      "is rented: their jobs are stopped, the machine stays yours.");
  parser.app().add_option("RUN", references, "Name, id, or the beginning of one");
  parser.app().add_flag("--all", all, "All runs that have not ended");
  parser.app().add_flag("-y,--yes", yes, "Do not ask");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(std::move(args)));
  if (!go_on) return kExitOk;
  if (all != references.empty()) {
    return UsageError("down takes either runs or --all", "gpuctl ps lists the runs");
  }
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  std::vector<RunRow> rows;
  if (all) {
    ASSIGN_OR_RETURN(rows, store->List(/*live_only=*/true));
  }
  for (const std::string& reference : references) {
    ASSIGN_OR_RETURN(rows.emplace_back(), FindRun(context, reference));
  }
  int code = kExitOk;
  std::vector<std::string> objects;
  for (RunRow& row : rows) {
    if (!row.end.has_value() && !yes) {
      ASSIGN_OR_RETURN(const bool agreed, Confirm(context, absl::StrCat("Stop ", row.name, " on ",
                                                                        row.target.name, "?")));
      if (!agreed) {
        PrintProgress(context, absl::StrCat("gpuctl: ", row.name, " was left alone"));
        code = kExitFailed;
        continue;
      }
    }
    RETURN_IF_ERROR(StopRun(context, row, /*wait=*/true));
    ASSIGN_OR_RETURN(const RunStatus status, MirroredStatus(context, row));
    objects.push_back(RunToJson(row, status));
    if (row.end.has_value()) {
      PrintProgress(context, absl::StrCat("gpuctl: ", row.name, " ", DescribeEnd(*row.end)));
    }
  }
  if (context.json()) {
    PrintJsonList(context, "runs", objects);
  } else {
    PrintProgress(context, "gpuctl: nothing is rented, nothing bills");
  }
  return code;
}

}  // namespace gpuctl
