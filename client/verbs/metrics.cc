// gpuctl metrics: show runs' numbers as a table, a curve, CSV, a drawing or event files.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/base/suggest.h"
#include "client/batch/batch_results.h"
#include "client/follow/catch_up.h"
#include "client/metrics/plot.h"
#include "client/runs/context.h"
#include "client/runs/find_run.h"
#include "client/streams/mirror_reader.h"
#include "client/streams/read_history.h"
#include "client/terminal/console.h"
#include "client/terminal/line_assembler.h"
#include "client/terminal/panel_terminal.h"
#include "client/terminal/safe_text.h"
#include "client/terminal/shown_name.h"
#include "client/terminal/table.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/metrics_files.h"
#include "client/verbs/queue_results.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kMetricsPatience = absl::Seconds(10);

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

std::string CsvNumber(const std::optional<double>& value) {
  return value.has_value() ? FormatExactly(*value) : "";
}

// A time that was only estimated is no measurement.
std::string MeasuredTime(const HistoryPoint& point) {
  return point.time_is_estimate ? "" : FormatRfc3339(point.time_ms);
}

std::optional<double> GpuPercent(const RunNumbers& run, const HistoryPoint& point) {
  return point.time_is_estimate ? std::nullopt : run.gpus->UtilizationAt(point);
}

constexpr char kCsvHeader[] =
    "run,step,kind,loss,time,epoch,learning_rate,grad_norm,tokens_per_s,gpu_percent";

// Returns the names of the numbers that only the jobs themselves know, of all runs.
std::vector<std::string> OwnNames(const RunNumbersList& runs) {
  std::vector<std::string> names;
  for (const auto& run : runs) {
    for (const std::string& name : run->own.names()) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

// Returns the cells of `names` in a row, each behind a comma; empty where `values` has none.
std::string OwnCells(const OwnMetrics& own, const std::vector<std::string>& names,
                     const OwnMetrics::Values* values) {
  std::string cells;
  for (const std::string& name : names) {
    const auto known = std::find(own.names().begin(), own.names().end(), name);
    const auto index = static_cast<size_t>(known - own.names().begin());
    const bool has = values != nullptr && values->count(index) > 0;
    absl::StrAppend(&cells, ",", has ? FormatExactly(values->at(index)) : "");
  }
  return cells;
}

void AddCsvRows(const RunNumbers& run, const std::vector<std::string>& names,
                std::vector<std::string>& lines) {
  std::map<int64_t, OwnMetrics::Values> left = run.own.steps();
  // A step's own numbers stand in its first row.
  const auto take = [&](int64_t step) {
    const auto values = left.find(step);
    const std::string cells =
        OwnCells(run.own, names, values == left.end() ? nullptr : &values->second);
    if (values != left.end()) left.erase(values);
    return cells;
  };
  const auto alone_before = [&](int64_t step) {
    while (!left.empty() && left.begin()->first < step) {
      const int64_t own_step = left.begin()->first;
      lines.push_back(absl::StrCat(run.row.name, ",", own_step, ",own,,,,,,,", take(own_step)));
    }
  };
  for (const HistoryPoint& point : run.history.points()) {
    alone_before(point.step);
    const std::string begin = absl::StrCat(run.row.name, ",", point.step, ",");
    const std::string when = absl::StrCat(",", MeasuredTime(point), ",", CsvNumber(point.epoch));
    const bool trained = point.loss || point.learning_rate || point.grad_norm || point.tokens_per_s;
    if (trained) {
      lines.push_back(absl::StrCat(begin, "train,", CsvNumber(point.loss), when, ",",
                                   CsvNumber(point.learning_rate), ",", CsvNumber(point.grad_norm),
                                   ",", CsvNumber(point.tokens_per_s), ",",
                                   CsvNumber(GpuPercent(run, point)), take(point.step)));
    }
    if (point.eval_loss) {
      lines.push_back(
          absl::StrCat(begin, "eval,", CsvNumber(point.eval_loss), when, ",,,,", take(point.step)));
    }
  }
  if (!left.empty()) alone_before(left.rbegin()->first + 1);
}

void PrintCsv(const CommandContext& context, const RunNumbersList& runs) {
  const std::vector<std::string> names = OwnNames(runs);
  std::string head = kCsvHeader;
  for (const std::string& name : names) absl::StrAppend(&head, ",", CsvCell(name));
  std::vector<std::string> lines = {std::move(head)};
  for (const auto& run : runs) AddCsvRows(*run, names, lines);
  context.PrintLines(lines);
}

nlohmann::ordered_json OwnJson(const OwnMetrics& own, const OwnMetrics::Values& values) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [index, value] : values) json[own.names()[index]] = NumberToJson(value);
  return json;
}

nlohmann::ordered_json HistoryJson(const RunNumbers& run) {
  std::map<int64_t, nlohmann::ordered_json> points;
  for (const HistoryPoint& point : run.history.points()) {
    nlohmann::ordered_json json = {{"step", point.step}};
    if (const std::string time = MeasuredTime(point); !time.empty()) json["time"] = time;
    const std::pair<const char*, std::optional<double>> numbers[] = {
        {"epoch", point.epoch},
        {"loss", point.loss},
        {"eval_loss", point.eval_loss},
        {"learning_rate", point.learning_rate},
        {"grad_norm", point.grad_norm},
        {"tokens_per_s", point.tokens_per_s},
        {"gpu_percent", GpuPercent(run, point)}};
    for (const auto& [name, value] : numbers) {
      if (value.has_value()) json[name] = NumberToJson(value);
    }
    points.emplace(point.step, std::move(json));
  }
  for (const auto& [step, values] : run.own.steps()) {
    nlohmann::ordered_json& json =
        points.emplace(step, nlohmann::ordered_json{{"step", step}}).first->second;
    json["own"] = OwnJson(run.own, values);
  }
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (auto& [step, json] : points) list.push_back(std::move(json));
  return list;
}

nlohmann::ordered_json Points(const std::vector<PlotPoint>& points) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const PlotPoint& point : points) {
    list.push_back({{"step", static_cast<int64_t>(point.x)}, {"loss", NumberToJson(point.y)}});
  }
  return list;
}

// `metric`: the number that is shown beside the others, and drawn in place of the loss; "": none.
void PrintText(const CommandContext& context, const RunNumbersList& runs, const std::string& metric,
               bool log_y) {
  std::vector<TableRow> table = {{"RUN", "STEP", "LOSS", "EVAL", "LR", "TOKENS/S", "CHECKPOINT"}};
  if (!metric.empty()) table[0].insert(table[0].begin() + 2, Cell(metric));
  std::vector<PlotSeries> series;
  for (const auto& run : runs) {
    const TrainingProgress& p = run->progress;
    table.push_back(
        {run->row.name,
         p.step() < 0 ? "-"
                      : absl::StrCat(p.step(),
                                     p.total_steps() > 0 ? absl::StrCat("/", p.total_steps()) : ""),
         Number(p.loss()), Number(p.eval_loss()), Number(p.learning_rate()),
         Number(p.tokens_per_s()),
         p.checkpoint_step() < 0 ? "-" : absl::StrCat(p.checkpoint_step())});
    if (!metric.empty()) {
      const bool has = !run->chosen.empty();
      table.back().insert(table.back().begin() + 2,
                          Number(has ? std::make_optional(run->chosen.back().y) : std::nullopt));
    }
    series.push_back({run->label, metric.empty() ? p.losses() : run->chosen});
  }
  // Scripts that save by themselves do not tell the step.
  const bool told = std::any_of(table.begin() + 1, table.end(),
                                [](const TableRow& row) { return row.back().text != "-"; });
  for (TableRow& row : table) {
    if (!told) row.pop_back();
  }
  const TerminalSize size = GetTerminalSize(STDOUT_FILENO);
  if (context.terminal.stdout_tty) {
    context.PrintTableWithin(std::move(table), size.columns,
                             {"CHECKPOINT", "TOKENS/S", "LR", "EVAL", "STEP"});
  } else {
    context.PrintTable(table);
  }
  const std::vector<std::string> plot =
      Plot(series, "steps", std::min(size.columns - 1, 100), std::clamp(size.rows - 8, 8, 20),
           !context.terminal.utf8, log_y);
  const bool any = std::any_of(series.begin(), series.end(),
                               [](const PlotSeries& one) { return !one.points.empty(); });
  if (plot.empty()) {
    if (any && log_y) context.Say("no value is above 0, so a logarithmic axis shows none");
    return;
  }
  context.PrintLine("");
  context.PrintLine(absl::StrCat(metric.empty() ? "loss" : metric, log_y ? ", logarithmic" : ""));
  context.PrintLines(plot);
}

void PrintJson(const CommandContext& context, const RunNumbersList& runs) {
  std::vector<nlohmann::ordered_json> objects;
  for (const auto& run : runs) {
    objects.push_back({{"run_id", run->row.run_id},
                       {"name", run->row.name},
                       {"losses", Points(run->progress.losses())},
                       {"eval_losses", Points(run->progress.eval_losses())},
                       {"points", HistoryJson(*run)}});
  }
  context.PrintJsonList("runs", objects);
}

void PrintFiles(const CommandContext& context, const std::vector<WrittenFile>& files) {
  std::vector<nlohmann::ordered_json> objects;
  std::vector<TableRow> table = {{"RUN", "FILE", "SIZE"}};
  for (const WrittenFile& file : files) {
    nlohmann::ordered_json json = {{"run_id", nullptr}, {"name", nullptr}};
    if (!file.run_id.empty()) json = {{"run_id", file.run_id}, {"name", file.name}};
    json["path"] = file.path;
    json["bytes"] = file.bytes;
    objects.push_back(std::move(json));
    table.push_back({file.run_id.empty() ? "all" : file.name, file.path, FormatBytes(file.bytes)});
  }
  if (context.json()) return context.PrintJsonList("files", objects);
  context.PrintTable(table);
}

// Writes what the flags name; empty: not wanted.
absl::StatusOr<int> WriteFiles(const CommandContext& context, const RunNumbersList& runs,
                               const std::string& tensorboard, const std::string& plot,
                               const std::string& metric, bool log_y) {
  std::vector<WrittenFile> files;
  for (const auto& run : runs) {
    if (!run->history.points().empty()) continue;
    context.Say(absl::StrCat(run->row.name, " has no numbers yet"));
  }
  if (!tensorboard.empty()) {
    ASSIGN_OR_RETURN(files, WriteEventFiles(runs, tensorboard));
    if (files.empty()) {
      return WithHint(
          absl::NotFoundError("there is nothing to write: no run has numbers yet"),
          absl::StrCat("gpuctl logs ", TypedName(runs[0]->row.name, "RUN"), " shows its output"));
    }
  }
  if (!plot.empty()) {
    ASSIGN_OR_RETURN(WrittenFile drawing, WritePlot(runs, plot, metric, log_y));
    if (runs.size() == 1) drawing.run_id = runs[0]->row.run_id;
    if (runs.size() == 1) drawing.name = runs[0]->row.name;
    files.push_back(std::move(drawing));
  }
  PrintFiles(context, files);
  if (!tensorboard.empty()) {
    context.Hint(absl::StrCat("tensorboard --logdir ", TypedName(tensorboard, "DIR")));
  }
  return kExitOk;
}

// Asks the run's machine for what is new, and reads what is here.
absl::Status ReadNumbers(CommandContext& context, RunStore& store, bool offline, bool everything,
                         RunNumbers& run) {
  if (!offline) {
    absl::Status error;
    const absl::StatusOr<Caught> caught =
        CatchUp(context, store, run.row, kMetricsPatience, &error);
    if (absl::IsCancelled(caught.status())) return caught.status();
    // What is here is shown in any case; a full disk of this laptop is no reason against it.
    if (!caught.ok()) error = caught.status();
    if (caught.value_or(Caught::kNot) == Caught::kNot) {
      context.Warn(absl::StrCat("as of the last contact: ", error.message()));
    }
  }
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  MirrorReader mirror(paths.MirrorDir(run.row.run_id), run.row.output_segment_bytes);
  RETURN_IF_ERROR(mirror.RefreshAll());
  run.progress = mirror.progress();
  if (!everything) return absl::OkStatus();
  RETURN_IF_ERROR(ReadHistory(mirror, run.row.heard_ms, run.history));
  RETURN_IF_ERROR(mirror.ForEachMetricsLine([&run](absl::string_view line) { run.own.Add(line); }));
  if (run.history.thinned()) {
    context.Say(
        absl::StrCat(run.row.name, " has very many steps: evenly chosen ones stand for all"));
  }
  run.gpus = std::make_unique<GpuHistory>(run.history);
  return ReadGpuHistory(mirror, *run.gpus);
}

// Gives each run its label.
void LabelRuns(CommandContext& context, const RunNumbersList& runs) {
  constexpr int kMostColumns = 60;
  const bool several = runs.size() > 1;
  // Without the batches the names alone must do.
  const absl::StatusOr<std::unique_ptr<BatchStore>> batches =
      several ? OpenBatches(context) : absl::NotFoundError("one run needs no legend");
  for (const auto& run : runs) {
    std::string label = run->row.name;
    if (batches.ok()) {
      const absl::StatusOr<Parameters> parameters = (*batches)->ParametersOf(run->row.run_id);
      if (parameters.ok() && !parameters->empty()) {
        absl::StrAppend(&label, " ", DescribeParameters(*parameters));
      }
    }
    run->label = TruncateToWidth(MakeSafe(label), kMostColumns);
  }
}

// Names the runs that have no value of `metric` ("": any), and the numbers that they have.
void TellWhoHasNot(CommandContext& context, const ClientPaths& paths, const RunNumbersList& runs,
                   const std::string& metric) {
  if (metric.empty()) return;
  std::vector<RunRow> without;
  for (const auto& run : runs) {
    if (run->chosen.empty()) without.push_back(run->row);
  }
  if (without.empty()) return;
  const std::vector<std::string> numbers = NumbersOfRuns(paths, without);
  const std::string who = without.size() == 1 ? absl::StrCat(without[0].name, " has")
                                              : absl::StrCat(without.size(), " of these runs have");
  context.Say(
      absl::StrCat(who, " no value of ", metric, " with a step", DidYouMean(metric, numbers)));
  if (numbers.empty()) return;
  context.Hint(absl::StrCat("--metric names one of the numbers that ",
                            without.size() == 1 ? "it has" : "they have", ": ",
                            absl::StrJoin(numbers, ", ")));
}

}  // namespace

absl::StatusOr<int> CmdMetrics(CommandContext& context, std::vector<std::string> args) {
  std::vector<std::string> references;
  std::string tensorboard, plot, metric;
  bool csv = false, offline = false, log_y = false;
  VerbParser parser(
      context, "metrics [RUN...] [FLAGS]",
      "Shows what runs measured: the newest numbers and the loss curve; several runs\n"
      "share the axes. Scripts that write no metrics are read by their output.",
      "  gpuctl metrics amber-fox-3\n"
      "  gpuctl metrics amber-fox-3 amber-fox-4 --plot loss.svg\n"
      "  gpuctl metrics amber-fox-3 --csv > loss.csv");
  parser.Option("RUN", references,
                "Name, id, or the beginning of one; @last: the newest\nrun; a batch: all its runs; "
                "without it: the newest\nlive run");
  parser.Option("--metric", metric, "Show and draw this number of the job, as it named it");
  parser.Switch("--csv", csv, "All steps as CSV: loss, time, epoch, rate, speed, GPU");
  const FlagSet::Flag plots =
      parser.Option("--plot", plot, "Draw all runs into FILE.svg or FILE.png");
  parser.Switch("--log", log_y, "Draw with a logarithmic axis: for values of different sizes");
  const FlagSet::Flag exports = parser.Option("--tensorboard", tensorboard,
                                              "Write event files for TensorBoard below this DIR");
  parser.Switch("--offline", offline, "Only what is on this laptop already");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  const bool files = plots.given() || exports.given();
  if (plots.given()) RETURN_IF_ERROR(CheckPlotName(plot));
  if (exports.given() && tensorboard.empty()) {
    return UsageError("--tensorboard names no directory", "gpuctl metrics RUN --tensorboard logs");
  }
  if (csv && files) {
    return UsageError("--csv prints, --plot and --tensorboard write files: give one kind",
                      "call gpuctl metrics twice");
  }
  if (log_y && (csv || context.json() || (files && !plots.given()))) {
    return UsageError("--log is for what is drawn, on the terminal or by --plot",
                      "leave it out: the numbers are the same");
  }
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  RunNumbersList runs;
  RETURN_IF_ERROR(CheckStarted(context, references));
  ASSIGN_OR_RETURN(references, WithRunsOfBatches(context, references));
  ASSIGN_OR_RETURN(std::vector<RunRow> rows, FindRuns(context, *store, references));
  for (RunRow& row : rows) {
    auto run = std::make_unique<RunNumbers>();
    run->row = std::move(row);
    const bool named = std::any_of(runs.begin(), runs.end(), [&run](const auto& other) {
      return other->row.run_id == run->row.run_id;
    });
    if (named) continue;
    RETURN_IF_ERROR(ReadNumbers(context, *store, offline, files || csv || context.json(), *run));
    if (!metric.empty()) run->chosen = PointsOfMetric(paths, run->row, metric);
    runs.push_back(std::move(run));
  }
  LabelRuns(context, runs);
  if (files) {
    const absl::StatusOr<int> written = WriteFiles(context, runs, tensorboard, plot, metric, log_y);
    if (!written.ok()) return WithExitCode(written.status(), kExitFailed);
    return written;
  }
  if (context.json()) {
    PrintJson(context, runs);
  } else if (csv) {
    PrintCsv(context, runs);
  } else {
    TellWhoHasNot(context, paths, runs, metric);
    PrintText(context, runs, metric, log_y);
  }
  return kExitOk;
}

}  // namespace gpuctl
