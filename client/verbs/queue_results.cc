#include "client/verbs/queue_results.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/batch/batch_results.h"
#include "client/history/metric_history.h"
#include "client/streams/mirror_reader.h"
#include "client/streams/read_history.h"
#include "client/terminal/console.h"
#include "client/verbs/batch_text.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

// One entry with what came of it.
struct Row {
  const EntryView* view;
  std::string batch;
  MetricValues values;
  std::optional<double> cost_usd;  // at most; absent for a machine of the user's own
  bool best = false;
};

std::optional<double> ValueOf(const HistoryPoint& point, absl::string_view metric) {
  if (metric == "loss") return point.loss;
  if (metric == "eval_loss") return point.eval_loss;
  if (metric == "learning_rate" || metric == "lr") return point.learning_rate;
  if (metric == "grad_norm") return point.grad_norm;
  if (metric == "tokens_per_s") return point.tokens_per_s;
  return std::nullopt;
}

// Reads the metric of a run from its copy here: numbers that gpuctl knows, also out of the output;
// any other from the job's metrics by its name there.
MetricValues ReadValues(const ClientPaths& paths, const RunRow& run, const std::string& metric,
                        MetricGoal goal) {
  MetricValues values;
  MirrorReader mirror(paths.MirrorDir(run.run_id), run.output_segment_bytes);
  MetricHistory history;
  if (ReadHistory(mirror, run.heard_ms, history).ok()) {
    for (const HistoryPoint& point : history.points()) {
      if (const auto value = ValueOf(point, metric); value.has_value()) values.Add(*value, goal);
    }
  }
  if (values.last.has_value()) return values;
  // A file that cannot be read has no numbers.
  (void)mirror.ForEachMetricsLine([&](absl::string_view line) {
    if (const auto value = MetricInJson(line, metric); value.has_value()) values.Add(*value, goal);
  });
  return values;
}

// Returns how much a run's value counts for the best one: first those that succeeded, then those
// that may still do so, and one that was stopped or failed only when there is no other.
int RankOf(const EntryView& view) {
  if (view.phase == EntryPhase::kDone) return 0;
  return view.over() ? 2 : 1;
}

// Marks the best row.
void MarkBest(MetricGoal goal, std::vector<Row>& rows) {
  for (int rank = 0; rank <= 2; ++rank) {
    std::vector<MetricValues> values;
    for (const Row& row : rows) {
      values.push_back(RankOf(*row.view) == rank ? row.values : MetricValues());
    }
    if (const std::optional<size_t> best = BestRun(values, goal)) {
      rows[*best].best = true;
      return;
    }
  }
}

// Says which run has a better value than the best one, and why it is not that.
void TellOfBetter(CommandContext& context, const std::string& metric, MetricGoal goal,
                  const std::vector<Row>& rows) {
  std::vector<MetricValues> values;
  for (const Row& row : rows) values.push_back(row.values);
  const std::optional<size_t> better = BestRun(values, goal);
  if (!better.has_value()) return;
  const Row& row = rows[*better];
  const auto best = std::find_if(rows.begin(), rows.end(), [](const Row& one) { return one.best; });
  // The first of equals is no better one.
  if (row.best || best->values.best == row.values.best) return;
  context.Say(absl::StrCat(row.view->entry.name, " has a better value of ", metric, ", ",
                           FormatNumber(*row.values.best), ", and is ",
                           EntryPhaseWord(row.view->phase), ", not done"));
}

absl::StatusOr<std::vector<Row>> ReadRows(CommandContext& context, Holdings& holdings,
                                          const std::string& metric, MetricGoal goal,
                                          const std::vector<BatchView>& views) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  std::vector<Row> rows;
  for (const BatchView& batch : views) {
    for (const EntryView& view : batch.entries) {
      Row row{&view, batch.batch.name, {}, std::nullopt, false};
      if (view.run.has_value() && view.entry.state == EntryState::kStarted) {
        row.values = ReadValues(paths, *view.run, metric, goal);
        ASSIGN_OR_RETURN(const std::optional<Lease> lease, holdings.LeaseOf(view.run->run_id));
        if (lease.has_value()) {
          row.cost_usd = SpentByRun(*lease, view.run->run_id, context.NowMs()).high_usd;
        }
      }
      rows.push_back(std::move(row));
    }
  }
  MarkBest(goal, rows);
  return rows;
}

std::string MetricOf(const ResultFlags& flags) {
  return flags.metric.empty() ? "loss" : flags.metric;
}

absl::StatusOr<MetricGoal> GoalOf(const ResultFlags& flags) {
  if (flags.goal.empty()) return UsualGoal(MetricOf(flags));
  if (flags.goal == "max") return MetricGoal::kHighest;
  if (flags.goal == "min") return MetricGoal::kLowest;
  return UsageError(absl::StrCat("--goal: \"", flags.goal, "\" is neither min nor max"),
                    "--goal max takes the highest value for the best");
}

// Returns the names of all parameters, in the order in which they come.
std::vector<std::string> NamesOf(const std::vector<Row>& rows) {
  std::vector<std::string> names;
  for (const Row& row : rows) {
    for (const auto& [name, value] : row.view->entry.parameters) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

std::string ParameterOf(const Row& row, const std::string& name) {
  for (const auto& [known, value] : row.view->entry.parameters) {
    if (known == name) return value;
  }
  return "";
}

std::string Number(const std::optional<double>& value, const char* otherwise) {
  return value.has_value() ? FormatNumber(*value) : otherwise;
}

void PrintCsv(CommandContext& context, const std::string& metric, const std::vector<Row>& rows) {
  const std::vector<std::string> names = NamesOf(rows);
  std::vector<std::string> head = {"entry"};
  for (const std::string& name : names) head.push_back(CsvCell(name));
  head.insert(head.end(), {"state", "run", CsvCell(absl::StrCat(metric, "_last")),
                           CsvCell(absl::StrCat(metric, "_best")), "cost_usd", "best"});
  context.PrintLine(absl::StrJoin(head, ","));
  for (const Row& row : rows) {
    std::vector<std::string> cells = {CsvCell(row.view->entry.name)};
    for (const std::string& name : names) cells.push_back(CsvCell(ParameterOf(row, name)));
    const bool has_run = row.view->run.has_value() && row.view->entry.state == EntryState::kStarted;
    cells.insert(
        cells.end(),
        {EntryPhaseWord(row.view->phase), has_run ? CsvCell(row.view->run->name) : "",
         Number(row.values.last, ""), Number(row.values.best, ""),
         row.cost_usd.has_value() ? absl::StrCat(*row.cost_usd) : "", row.best ? "true" : "false"});
    context.PrintLine(absl::StrJoin(cells, ","));
  }
}

void PrintAsJson(CommandContext& context, const std::string& metric, const std::vector<Row>& rows) {
  std::vector<nlohmann::ordered_json> objects;
  for (const Row& row : rows) {
    nlohmann::ordered_json& json = objects.emplace_back(EntryToJson(*row.view));
    json["batch"] = row.batch;
    json["metric"] = metric;
    json["last"] = NumberToJson(row.values.last);
    json["best"] = NumberToJson(row.values.best);
    json["cost_usd"] =
        row.cost_usd.has_value() ? nlohmann::ordered_json(*row.cost_usd) : nlohmann::ordered_json();
    json["best_run"] = row.best;
  }
  context.PrintJsonList("results", objects);
}

void PrintAsTable(CommandContext& context, const std::string& metric,
                  const std::vector<Row>& rows) {
  const std::vector<std::string> names = NamesOf(rows);
  const bool rented = std::any_of(rows.begin(), rows.end(),
                                  [](const Row& row) { return row.cost_usd.has_value(); });
  TableRow head = {"", "ENTRY"};
  for (const std::string& name : names) head.emplace_back(name);
  head.insert(head.end(), {"STATE", absl::StrCat("LAST ", metric), absl::StrCat("BEST ", metric)});
  if (rented) head.emplace_back("COST");
  std::vector<TableRow> table = {head};
  for (const Row& row : rows) {
    TableRow cells = {row.best ? "*" : "", MarkedName(*row.view)};
    for (const std::string& name : names) cells.emplace_back(ParameterOf(row, name));
    Cell state = EntryPhaseWord(row.view->phase);
    state.red = row.view->phase == EntryPhase::kFailed;
    cells.insert(cells.end(), {state, Number(row.values.last, "-"), Number(row.values.best, "-")});
    if (rented) cells.emplace_back(row.cost_usd.has_value() ? FormatUsd(*row.cost_usd) : "-");
    table.push_back(std::move(cells));
  }
  context.PrintTable(table);
  const auto best = std::find_if(rows.begin(), rows.end(), [](const Row& row) { return row.best; });
  if (best == rows.end()) {
    return context.Say(absl::StrCat("no run here has a value of ", metric, " yet"));
  }
  context.Hint(
      absl::StrCat("gpuctl pull ", best->view->run->name, " brings the best one's results"));
}

}  // namespace

absl::StatusOr<RunRow> FindBestRun(CommandContext& context, Holdings& holdings,
                                   const ResultFlags& flags, const std::vector<BatchView>& views) {
  ASSIGN_OR_RETURN(const MetricGoal goal, GoalOf(flags));
  ASSIGN_OR_RETURN(const std::vector<Row> rows,
                   ReadRows(context, holdings, MetricOf(flags), goal, views));
  for (const Row& row : rows) {
    if (!row.best) continue;
    TellOfBetter(context, MetricOf(flags), goal, rows);
    return *row.view->run;
  }
  return WithHint(
      absl::NotFoundError(absl::StrCat("no run of the batch has a value of ", MetricOf(flags))),
      "--metric names another number of its runs");
}

absl::Status PrintResults(CommandContext& context, Holdings& holdings, const ResultFlags& flags,
                          const std::vector<BatchView>& views) {
  const std::string metric = MetricOf(flags);
  ASSIGN_OR_RETURN(const MetricGoal goal, GoalOf(flags));
  if (flags.csv && context.json()) return UsageError("--csv and --json differ", "leave out one");
  ASSIGN_OR_RETURN(const std::vector<Row> rows, ReadRows(context, holdings, metric, goal, views));
  if (context.json()) {
    PrintAsJson(context, metric, rows);
  } else if (flags.csv) {
    PrintCsv(context, metric, rows);
  } else {
    PrintAsTable(context, metric, rows);
    TellOfBetter(context, metric, goal, rows);
    for (const BatchView& view : views) TellOfOtherContent(context, view);
  }
  return absl::OkStatus();
}

}  // namespace gpuctl
