#include "client/verbs/queue_results.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/batch/batch_results.h"
#include "client/history/metric_history.h"
#include "client/history/own_metrics.h"
#include "client/streams/mirror_reader.h"
#include "client/streams/read_history.h"
#include "client/terminal/console.h"
#include "client/terminal/panel_terminal.h"
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

constexpr const char* kKnownNumbers[] = {"loss", "eval_loss", "lr", "grad_norm", "tokens_per_s"};

std::optional<double> ValueOf(const HistoryPoint& point, absl::string_view metric) {
  if (metric == "loss") return point.loss;
  if (metric == "eval_loss") return point.eval_loss;
  if (metric == "learning_rate" || metric == "lr") return point.learning_rate;
  if (metric == "grad_norm") return point.grad_norm;
  if (metric == "tokens_per_s") return point.tokens_per_s;
  return std::nullopt;
}

// True for the names by which scripts print what is eval_loss here.
bool IsPrintedHeldOutLoss(absl::string_view metric) {
  return metric == "val_loss" || metric == "valid_loss" || metric == "validation_loss";
}

// Passes the metric of a run from its copy here, with the steps as far as they are known: numbers
// that gpuctl knows, also out of the output; any other from the job's metrics by its name there.
void ForEachValue(const ClientPaths& paths, const RunRow& run, const std::string& metric,
                  const std::function<void(double, std::optional<int64_t>)>& take) {
  MirrorReader mirror(paths.MirrorDir(run.run_id), run.output_segment_bytes);
  MetricHistory history;
  bool any = false;
  if (ReadHistory(mirror, run.heard_ms, history).ok()) {
    for (const HistoryPoint& point : history.points()) {
      const std::optional<double> value = ValueOf(point, metric);
      if (!value.has_value()) continue;
      any = true;
      take(*value, point.step);
    }
  }
  if (any) return;
  // A file that cannot be read has no numbers.
  (void)mirror.ForEachMetricsLine([&](absl::string_view line) {
    const auto value = MetricInJson(line, metric), step = MetricInJson(line, "step");
    if (!value.has_value()) return;
    any = true;
    const bool counts = step.has_value() && *step >= 0 && *step < 1e15;
    take(*value, counts ? std::make_optional(static_cast<int64_t>(*step)) : std::nullopt);
  });
  if (any || !IsPrintedHeldOutLoss(metric)) return;
  for (const HistoryPoint& point : history.points()) {
    if (point.eval_loss.has_value()) take(*point.eval_loss, point.step);
  }
}

MetricValues ReadValues(const ClientPaths& paths, const RunRow& run, const std::string& metric,
                        MetricGoal goal) {
  MetricValues values;
  ForEachValue(paths, run, metric,
               [&](double value, std::optional<int64_t> step) { values.Add(value, goal, step); });
  return values;
}

// Returns how much a run's value counts for the best one: first those that succeeded, then those
// that may still do so, and one that was stopped or failed only when there is no other.
int RankOf(const EntryView& view) {
  if (view.phase == EntryPhase::kDone) return 0;
  return view.over() ? 2 : 1;
}

bool AnyHasValue(const std::vector<Row>& rows) {
  return std::any_of(rows.begin(), rows.end(),
                     [](const Row& row) { return row.values.last.has_value(); });
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

absl::StatusOr<std::vector<Row>> ReadRows(CommandContext& context, const std::string& metric,
                                          MetricGoal goal, const std::vector<BatchView>& views) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  std::vector<Row> rows;
  for (const BatchView& batch : views) {
    for (const EntryView& view : batch.entries) {
      Row row{&view, batch.batch.name, {}, std::nullopt, false};
      if (view.run.has_value() && view.entry.state == EntryState::kStarted) {
        row.values = ReadValues(paths, *view.run, metric, goal);
      }
      rows.push_back(std::move(row));
    }
  }
  MarkBest(goal, rows);
  return rows;
}

// Adds what each entry's runs have cost: the last one, and those before it that were preempted or
// did not get as far.
absl::Status AddCosts(CommandContext& context, Holdings& holdings, BatchStore& batches,
                      const std::vector<BatchView>& views, std::vector<Row>& rows) {
  std::map<std::string, double> costs;  // of entries, by id
  for (const BatchView& view : views) {
    ASSIGN_OR_RETURN(const std::vector<Attempt> attempts, batches.Attempts(view.batch.batch_id));
    for (const Attempt& attempt : attempts) {
      ASSIGN_OR_RETURN(const std::optional<Lease> lease, holdings.LeaseOf(attempt.run_id));
      if (!lease.has_value()) continue;
      costs[attempt.entry_id] += SpentByRun(*lease, attempt.run_id, context.NowMs()).high_usd;
    }
  }
  for (Row& row : rows) {
    const auto cost = costs.find(row.view->entry.entry_id);
    if (cost != costs.end()) row.cost_usd = cost->second;
  }
  return absl::OkStatus();
}

std::string MetricOf(const ResultFlags& flags) {
  return flags.metric.empty() ? "loss" : flags.metric;
}

// Returns nothing where only the user knows.
absl::StatusOr<std::optional<MetricGoal>> GoalOf(const ResultFlags& flags) {
  if (flags.goal.empty()) return UsualGoal(MetricOf(flags));
  if (flags.goal == "max") return MetricGoal::kHighest;
  if (flags.goal == "min") return MetricGoal::kLowest;
  return UsageError(absl::StrCat("--goal: \"", flags.goal, "\" is neither min nor max"),
                    "--goal max takes the highest value for the best");
}

absl::Status UnknownGoal(const ResultFlags& flags) {
  return UsageError(
      absl::StrCat("which values of ", MetricOf(flags), " are the better ones is not known here"),
      "--goal max takes the highest value for the best, --goal min the lowest");
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

// Returns every digit; "" for none.
std::string Exactly(const std::optional<double>& value) {
  if (!value.has_value()) return "";
  const nlohmann::ordered_json json = NumberToJson(value);
  return json.is_string() ? json.get<std::string>() : json.dump();
}

void PrintCsv(CommandContext& context, const std::string& metric, const std::vector<Row>& rows) {
  const std::vector<std::string> names = NamesOf(rows);
  std::vector<std::string> head = {"entry"};
  for (const std::string& name : names) head.push_back(CsvCell(name));
  head.insert(head.end(),
              {"state", "run", CsvCell(absl::StrCat(metric, "_last")),
               CsvCell(absl::StrCat(metric, "_best")), "best_step", "cost_usd", "best"});
  context.PrintLine(absl::StrJoin(head, ","));
  for (const Row& row : rows) {
    std::vector<std::string> cells = {CsvCell(row.view->entry.name)};
    for (const std::string& name : names) cells.push_back(CsvCell(ParameterOf(row, name)));
    const bool has_run = row.view->run.has_value() && row.view->entry.state == EntryState::kStarted;
    cells.insert(
        cells.end(),
        {EntryPhaseWord(row.view->phase), has_run ? CsvCell(row.view->run->name) : "",
         Exactly(row.values.last), Exactly(row.values.best),
         row.values.best_step.has_value() ? absl::StrCat(*row.values.best_step) : "",
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
    json["best_step"] = row.values.best_step.has_value()
                            ? nlohmann::ordered_json(*row.values.best_step)
                            : nlohmann::ordered_json();
    json["cost_usd"] =
        row.cost_usd.has_value() ? nlohmann::ordered_json(*row.cost_usd) : nlohmann::ordered_json();
    json["best_run"] = row.best;
  }
  context.PrintJsonList("results", objects);
}

// Returns "sweep-2 has the lowest loss, 0.12 at step 340, of the runs that are done".
std::string DescribeBest(const std::string& metric, MetricGoal goal, const Row& best) {
  static constexpr const char* kOfRuns[] = {"of the runs that are done", "so far: none is done",
                                            "of those that did not succeed: none is done"};
  const std::string step =
      best.values.best_step.has_value() ? absl::StrCat(" at step ", *best.values.best_step) : "";
  return absl::StrCat(best.view->entry.name, " has the ",
                      goal == MetricGoal::kLowest ? "lowest " : "highest ", metric, ", ",
                      FormatNumber(*best.values.best), step, ", ", kOfRuns[RankOf(*best.view)]);
}

// Says which run the star marks, and why.
void TellOfBest(CommandContext& context, const std::string& metric, MetricGoal goal,
                const Row& best) {
  context.Say(absl::StrCat("* ", DescribeBest(metric, goal, best),
                           "; --metric and --goal choose otherwise"));
  const bool at_the_end = best.values.best == best.values.last;
  context.Hint(absl::StrCat(
      "gpuctl pull ", best.view->run->name,
      at_the_end ? "" : absl::StrCat(" --checkpoint best --metric ", metric),
      at_the_end ? " brings the best one's results"
                 : absl::StrCat(" brings its checkpoint of that step; without these flags the "
                                "newest one comes")));
}

// Says what the runs have cost together.
void TellOfCost(CommandContext& context, const std::vector<Row>& rows) {
  double sum = 0;
  bool rented = false;
  for (const Row& row : rows) {
    rented = rented || row.cost_usd.has_value();
    sum += row.cost_usd.value_or(0);
  }
  if (!rented) return;
  context.Say(absl::StrCat("together ", FormatUsd(sum),
                           " so far, all their starts counted; gpuctl cost --by batch adds the "
                           "time in which machines were idle"));
}

absl::StatusOr<std::vector<std::string>> NumbersOf(CommandContext& context,
                                                   const std::vector<Row>& rows) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  std::vector<RunRow> runs;
  for (const Row& row : rows) {
    if (row.view->run.has_value()) runs.push_back(*row.view->run);
  }
  return NumbersOfRuns(paths, runs);
}

void PrintAsTable(CommandContext& context, const std::string& metric, MetricGoal goal,
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
    Cell last = Number(row.values.last, "-");
    last.red = row.values.last.has_value() && !std::isfinite(*row.values.last);
    cells.insert(cells.end(), {state, last, Number(row.values.best, "-")});
    if (rented) cells.emplace_back(row.cost_usd.has_value() ? FormatUsd(*row.cost_usd) : "-");
    table.push_back(std::move(cells));
  }
  PrintTableFor(context, std::move(table), {"COST", "STATE"});
  const auto best = std::find_if(rows.begin(), rows.end(), [](const Row& row) { return row.best; });
  if (best == rows.end()) {
    const absl::StatusOr<std::vector<std::string>> numbers = NumbersOf(context, rows);
    context.Say(absl::StrCat("no run here has a value of ", metric, " yet"));
    if (numbers.ok() && !numbers->empty()) {
      context.Hint(absl::StrCat("the numbers that they have are ", absl::StrJoin(*numbers, ", ")));
    }
    return;
  }
  TellOfBest(context, metric, goal, *best);
}

}  // namespace

std::vector<std::string> NumbersOfRuns(const ClientPaths& paths, const std::vector<RunRow>& runs) {
  OwnMetrics own;
  std::set<absl::string_view> known;
  for (const RunRow& run : runs) {
    MirrorReader mirror(paths.MirrorDir(run.run_id), run.output_segment_bytes);
    (void)mirror.ForEachMetricsLine([&own](absl::string_view line) { own.Add(line); });
    MetricHistory history;
    if (!ReadHistory(mirror, run.heard_ms, history).ok()) continue;
    for (const HistoryPoint& point : history.points()) {
      for (const char* name : kKnownNumbers) {
        if (ValueOf(point, name).has_value()) known.insert(name);
      }
    }
  }
  std::vector<std::string> names;
  for (const char* name : kKnownNumbers) {
    if (known.count(name) > 0) names.emplace_back(name);
  }
  names.insert(names.end(), own.names().begin(), own.names().end());
  return names;
}

absl::StatusOr<RunRow> FindBestRun(CommandContext& context, const ResultFlags& flags,
                                   const std::vector<BatchView>& views) {
  ASSIGN_OR_RETURN(const std::optional<MetricGoal> known, GoalOf(flags));
  const MetricGoal goal = known.value_or(MetricGoal::kLowest);
  ASSIGN_OR_RETURN(const std::vector<Row> rows, ReadRows(context, MetricOf(flags), goal, views));
  if (!known.has_value() && AnyHasValue(rows)) return UnknownGoal(flags);
  for (const Row& row : rows) {
    if (!row.best) continue;
    context.Say(DescribeBest(MetricOf(flags), goal, row));
    TellOfBetter(context, MetricOf(flags), goal, rows);
    return *row.view->run;
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> numbers, NumbersOf(context, rows));
  std::string hint = absl::StrCat("--metric names another number of its runs",
                                  numbers.empty() ? "" : ": ", absl::StrJoin(numbers, ", "));
  const bool all_failed =
      !rows.empty() && std::all_of(rows.begin(), rows.end(), [](const Row& row) {
        return row.view->phase == EntryPhase::kFailed;
      });
  if (all_failed)
    hint = absl::StrCat("all of them failed: gpuctl queue ", rows[0].batch, " says why");
  return WithHint(
      absl::NotFoundError(absl::StrCat("no run of the batch has a value of ", MetricOf(flags))),
      hint);
}

std::vector<PlotPoint> PointsOfMetric(const ClientPaths& paths, const RunRow& run,
                                      const std::string& metric) {
  std::vector<PlotPoint> points;
  ForEachValue(paths, run, metric, [&points](double value, std::optional<int64_t> step) {
    if (step.has_value()) points.push_back({static_cast<double>(*step), value});
  });
  return points;
}

absl::StatusOr<std::vector<PlotPoint>> PointsToChooseBy(CommandContext& context,
                                                        const ResultFlags& flags,
                                                        const RunRow& run) {
  ASSIGN_OR_RETURN(const std::optional<MetricGoal> goal, GoalOf(flags));
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  std::vector<PlotPoint> points = PointsOfMetric(paths, run, MetricOf(flags));
  if (!goal.has_value() && !points.empty()) return UnknownGoal(flags);
  const auto is_infinite = [](const PlotPoint& point) { return !std::isfinite(point.y); };
  points.erase(std::remove_if(points.begin(), points.end(), is_infinite), points.end());
  for (PlotPoint& point : points) {
    if (goal == MetricGoal::kHighest) point.y = -point.y;
  }
  if (!points.empty()) return points;
  return WithHint(absl::NotFoundError(
                      absl::StrCat(run.name, " has no value of ", MetricOf(flags), " with a step")),
                  absl::StrCat("gpuctl metrics ", run.name, " --csv shows what it measured"));
}

absl::Status PrintResults(CommandContext& context, Holdings& holdings, BatchStore& batches,
                          const ResultFlags& flags, const std::vector<BatchView>& views) {
  const std::string metric = MetricOf(flags);
  ASSIGN_OR_RETURN(const std::optional<MetricGoal> known, GoalOf(flags));
  const MetricGoal goal = known.value_or(MetricGoal::kLowest);
  if (flags.csv && context.json()) return UsageError("--csv and --json differ", "leave out one");
  ASSIGN_OR_RETURN(std::vector<Row> rows, ReadRows(context, metric, goal, views));
  if (!known.has_value() && AnyHasValue(rows)) return UnknownGoal(flags);
  RETURN_IF_ERROR(AddCosts(context, holdings, batches, views, rows));
  if (context.json()) {
    PrintAsJson(context, metric, rows);
  } else if (flags.csv) {
    PrintCsv(context, metric, rows);
  } else {
    PrintAsTable(context, metric, goal, rows);
    TellOfBetter(context, metric, goal, rows);
    TellOfCost(context, rows);
    for (const BatchView& view : views) TellOfOtherContent(context, view);
  }
  return absl::OkStatus();
}

}  // namespace gpuctl
