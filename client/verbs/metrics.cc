// gpuctl metrics: show a run's numbers as a table, a curve, or CSV.
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/follow/catch_up.h"
#include "client/metrics/plot.h"
#include "client/runs/context.h"
#include "client/runs/find_run.h"
#include "client/streams/mirror_reader.h"
#include "client/terminal/console.h"
#include "client/terminal/panel_terminal.h"
#include "client/terminal/table.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kMetricsPatience = absl::Seconds(10);

struct RunMetrics {
  RunRow row;
  TrainingProgress progress;
};

Cell Number(const std::optional<double>& value) {
  Cell cell = value.has_value() ? FormatNumber(*value) : "-";
  cell.red = value.has_value() && !std::isfinite(*value);
  return cell;
}

// Returns every digit, in the words of JSON where the number is not finite.
std::string FormatExactly(double value) {
  const nlohmann::ordered_json json = NumberToJson(value);
  return json.is_string() ? json.get<std::string>() : json.dump();
}

void PrintCsv(const CommandContext& context, const std::vector<RunMetrics>& runs) {
  std::vector<std::string> lines = {"run,step,kind,loss"};
  for (const RunMetrics& run : runs) {
    const auto add = [&](const std::vector<PlotPoint>& points, const char* kind) {
      for (const PlotPoint& point : points) {
        lines.push_back(absl::StrCat(run.row.name, ",", static_cast<int64_t>(point.x), ",", kind,
                                     ",", FormatExactly(point.y)));
      }
    };
    add(run.progress.losses(), "train");
    add(run.progress.eval_losses(), "eval");
  }
  context.PrintLines(lines);
}

nlohmann::ordered_json Points(const std::vector<PlotPoint>& points) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const PlotPoint& point : points) {
    list.push_back({{"step", static_cast<int64_t>(point.x)}, {"loss", NumberToJson(point.y)}});
  }
  return list;
}

void PrintText(const CommandContext& context, const std::vector<RunMetrics>& runs) {
  std::vector<TableRow> table = {{"RUN", "STEP", "LOSS", "EVAL", "LR", "TOKENS/S", "CHECKPOINT"}};
  std::vector<PlotSeries> series;
  for (const RunMetrics& run : runs) {
    const TrainingProgress& p = run.progress;
    table.push_back(
        {run.row.name,
         p.step() < 0 ? "-"
                      : absl::StrCat(p.step(),
                                     p.total_steps() > 0 ? absl::StrCat("/", p.total_steps()) : ""),
         Number(p.loss()), Number(p.eval_loss()), Number(p.learning_rate()),
         Number(p.tokens_per_s()),
         p.checkpoint_step() < 0 ? "-" : absl::StrCat(p.checkpoint_step())});
    series.push_back({absl::StrCat(run.row.name), p.losses()});
  }
  context.PrintTable(table);
  const TerminalSize size = GetTerminalSize(STDOUT_FILENO);
  const std::vector<std::string> plot =
      Plot(series, "steps", std::min(size.columns - 1, 100), std::clamp(size.rows - 8, 8, 20),
           !context.terminal.utf8);
  if (plot.empty()) return;
  context.PrintLine("");
  context.PrintLine("loss");
  context.PrintLines(plot);
}

}  // namespace

absl::StatusOr<int> CmdMetrics(CommandContext& context, std::vector<std::string> args) {
  std::vector<std::string> references;
  bool csv = false, offline = false;
  VerbParser parser(
      context, "metrics [RUN...] [FLAGS]",
      "Shows what runs measured: the newest numbers and the loss curve; several runs\n"
      "share the axes. Scripts that write no metrics are read by their output.");
  parser.Option("RUN", references, kRunOrNewestLive);
  parser.Switch("--csv", csv, "run,step,kind,loss as CSV");
  parser.Switch("--offline", offline, "Only what is on this laptop already");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  std::vector<RunMetrics> runs;
  ASSIGN_OR_RETURN(std::vector<RunRow> rows, FindRuns(context, *store, references));
  for (RunRow& row : rows) {
    RunMetrics run;
    run.row = std::move(row);
    if (!offline) {
      absl::Status error;
      const absl::StatusOr<Caught> caught =
          CatchUp(context, *store, run.row, kMetricsPatience, &error);
      if (absl::IsCancelled(caught.status())) return caught.status();
      // What is here is shown in any case; a full disk of this laptop is no reason against it.
      if (!caught.ok()) error = caught.status();
      if (caught.value_or(Caught::kNot) == Caught::kNot) {
        context.Say(absl::StrCat("as of the last contact: ", error.message()));
      }
    }
    MirrorReader mirror(paths.MirrorDir(run.row.run_id), run.row.output_segment_bytes);
    RETURN_IF_ERROR(mirror.RefreshAll());
    run.progress = mirror.progress();
    runs.push_back(std::move(run));
  }
  if (context.json()) {
    std::vector<nlohmann::ordered_json> objects;
    for (const RunMetrics& run : runs) {
      objects.push_back({{"run_id", run.row.run_id},
                         {"name", run.row.name},
                         {"losses", Points(run.progress.losses())},
                         {"eval_losses", Points(run.progress.eval_losses())}});
    }
    context.PrintJsonList("runs", objects);
  } else if (csv) {
    PrintCsv(context, runs);
  } else {
    PrintText(context, runs);
  }
  return kExitOk;
}

}  // namespace gpuctl
