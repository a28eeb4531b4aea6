// gpuctl cost: sum what rented machines cost.
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/bill/cost_report.h"
#include "client/bill/lease_view.h"
#include "client/market/holdings.h"
#include "client/terminal/console.h"
#include "client/terminal/table.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr double kMsPerHour = 3'600'000.0;

nlohmann::ordered_json CostRowJson(const CostRow& row) {
  return {{"key", row.key},
          {"spent_low_usd", row.spend.low_usd},
          {"spent_high_usd", row.spend.high_usd},
          {"hours", static_cast<double>(row.billed_ms) / kMsPerHour},
          {"machines", row.machines}};
}

// Returns how many digits behind the point the costs of a table need, so that no cost of it is
// shown as nothing and people can add them.
int DigitsOf(const CostReport& report) {
  constexpr double kCent = 0.01;
  const auto below = [](double usd) { return usd > 0 && usd < kCent; };
  const bool small = std::any_of(report.rows.begin(), report.rows.end(), [&](const CostRow& row) {
    return below(row.spend.low_usd) || below(row.spend.high_usd);
  });
  return small ? 4 : 2;
}

TableRow CostTableRow(const std::string& key, const CostRow& row, int digits) {
  return {key, FormatSpend(row.spend, digits), HumanDuration(absl::Milliseconds(row.billed_ms)),
          absl::StrCat(row.machines)};
}

// Quotes a field as RFC 4180 says.
std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

void PrintCsv(CommandContext& context, const std::string& by, const CostReport& report) {
  context.PrintLine(absl::StrCat(by, ",spent_low_usd,spent_high_usd,hours,machines"));
  for (const CostRow& row : report.rows) {
    context.PrintLine(absl::StrFormat(
        "%s,%.6f,%.6f,%.6f,%d", CsvField(row.key), row.spend.low_usd, row.spend.high_usd,
        static_cast<double>(row.billed_ms) / kMsPerHour, row.machines));
  }
}

// Gives each use the name that its run has in the list of runs. Of a run that was removed from
// there the ledger alone knows a name.
absl::Status NameUses(CommandContext& context, std::vector<Lease>& leases) {
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  std::set<std::string> run_ids;
  for (const Lease& lease : leases) {
    for (const LeaseUse& use : lease.uses) run_ids.insert(use.run_id);
  }
  ASSIGN_OR_RETURN(const auto rows, store->Find(run_ids));
  for (Lease& lease : leases) {
    for (LeaseUse& use : lease.uses) {
      const auto found = rows.find(use.run_id);
      if (found == rows.end()) continue;
      use.run_name = found->second.name;
      if (found->second.leader.empty()) continue;
      // All machines of a run have one line.
      const absl::StatusOr<RunRow> whole = store->Get(found->second.leader);
      if (whole.ok()) use.run_name = whole->name;
    }
  }
  return absl::OkStatus();
}

// Returns the name of the batch of each run that is of one, by run id.
absl::StatusOr<std::map<std::string, std::string>> BatchesOfRuns(CommandContext& context) {
  std::map<std::string, std::string> names;
  ASSIGN_OR_RETURN(const std::unique_ptr<BatchStore> batches, OpenBatches(context));
  ASSIGN_OR_RETURN(const std::vector<Batch> all, batches->List(/*open_only=*/false));
  for (const Batch& batch : all) {
    ASSIGN_OR_RETURN(const std::vector<Attempt> attempts, batches->Attempts(batch.batch_id));
    for (const Attempt& attempt : attempts) names[attempt.run_id] = batch.name;
  }
  return names;
}

// What a sum is restricted to: all of it are runs, or all of it are batches.
struct CostNames {
  CostBy by = CostBy::kRun;
  std::set<std::string> keys;
};

// Finds the runs or batches that the user named.
absl::StatusOr<CostNames> FindNames(CommandContext& context,
                                    const std::vector<std::string>& names) {
  CostNames found;
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  ASSIGN_OR_RETURN(const std::unique_ptr<BatchStore> batches, OpenBatches(context));
  size_t of_batches = 0;
  for (const std::string& name : names) {
    if (const absl::StatusOr<Batch> batch = batches->Get(name); batch.ok()) {
      found.keys.insert(batch->name);
      ++of_batches;
      continue;
    }
    absl::StatusOr<RunRow> row = store->Get(name);
    // All machines of a run have one line.
    if (row.ok() && !row->leader.empty()) row = store->Get(row->leader);
    if (!row.ok()) return row.status();
    found.keys.insert(row->name);
  }
  if (of_batches == names.size()) found.by = CostBy::kBatch;
  if (of_batches > 0 && of_batches < names.size()) {
    return UsageError("cost takes names of runs or names of batches, not both at once",
                      "gpuctl cost --by batch lists each batch");
  }
  return found;
}

}  // namespace

absl::StatusOr<int> CmdCost(CommandContext& context, std::vector<std::string> args) {
  std::string since, by_text = "run";
  std::vector<std::string> names;
  bool csv = false;
  VerbParser parser(
      context, "cost [RUN|BATCH...] [FLAGS]",
      "Sums what the machines cost that this gpuctl rented, by its own ledger: at least\n"
      "and at most, as the providers do not tell the second in which a bill ends. Traffic\n"
      "that Vast.ai charges for counts as the machines last reported it. Volumes are not in\n"
      "it.",
      "Runs that used a machine at the same time share its cost by their GPUs. The time in\n"
      "which none of several runs used it is (idle); by batch it belongs to the batch.\n\n"
      "  gpuctl cost sweep                   what that batch has cost\n"
      "  gpuctl cost --by batch              each batch with its machines\n"
      "  gpuctl cost --since 30d --by gpu    the last 30 days\n"
      "  gpuctl cost --by day --csv          for a spreadsheet");
  parser.Option("RUN", names, "Runs or batches to sum (default: all)");
  parser.Option("--since", since, "Only what was billed in this time, such as 30d (default: all)");
  const FlagSet::Flag by_flag =
      parser.Option("--by", by_text, "run, batch, gpu, provider or day (of UTC)");
  parser.Switch("--csv", csv, "As CSV, in USD and hours");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(CostBy by, ParseCostBy(by_text));
  CostNames named;
  if (!names.empty()) {
    if (by_flag.given()) {
      return UsageError("cost: --by is for all runs, not for named ones",
                        "leave out the names, or --by");
    }
    ASSIGN_OR_RETURN(named, FindNames(context, names));
    by = named.by;
    by_text = by == CostBy::kBatch ? "batch" : "run";
  }
  const int64_t now_ms = context.NowMs();
  int64_t since_ms = 0;
  if (!since.empty()) {
    ASSIGN_OR_RETURN(const absl::Duration time, ParseDuration(since));
    since_ms = std::max<int64_t>(0, now_ms - absl::ToInt64Milliseconds(time));
  }
  Holdings holdings(context);
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.FindLedger());
  std::vector<Lease> leases;
  if (ledger != nullptr) {
    ASSIGN_OR_RETURN(leases, ledger->List(/*open_only=*/false));
  }
  if (by == CostBy::kRun) RETURN_IF_ERROR(NameUses(context, leases));
  std::map<std::string, std::string> batch_of;
  if (by == CostBy::kBatch) {
    ASSIGN_OR_RETURN(batch_of, BatchesOfRuns(context));
  }
  const CostReport report = SumCosts(leases, by, since_ms, now_ms, batch_of, named.keys);
  if (context.json()) {
    std::vector<nlohmann::ordered_json> rows;
    for (const CostRow& row : report.rows) rows.push_back(CostRowJson(row));
    if (context.format == OutputFormat::kJsonLines) {
      context.PrintJsonList("rows", rows);
      return kExitOk;
    }
    nlohmann::ordered_json total = CostRowJson(report.total);
    total.erase("key");
    context.PrintJson({{"by", by_text},
                       {"since", since_ms > 0 ? nlohmann::ordered_json(FormatRfc3339(since_ms))
                                              : nlohmann::ordered_json()},
                       {"rows", rows},
                       {"total", total}});
    return kExitOk;
  }
  if (csv) {
    PrintCsv(context, by_text, report);
    return kExitOk;
  }
  std::vector<TableRow> table = {{absl::AsciiStrToUpper(by_text), "COST", "BILLED", "MACHINES"}};
  const int digits = DigitsOf(report);
  for (const CostRow& row : report.rows) table.push_back(CostTableRow(row.key, row, digits));
  if (report.rows.size() > 1) table.push_back(CostTableRow("total", report.total, digits));
  context.PrintTable(table);
  if (report.rows.empty()) {
    context.Say(names.empty()
                    ? "nothing was rented"
                    : absl::StrCat("nothing was rented for ", absl::StrJoin(named.keys, ", ")));
  }
  return kExitOk;
}

}  // namespace gpuctl
