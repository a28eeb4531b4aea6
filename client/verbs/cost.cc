// gpuctl cost: sum what rented machines cost.
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/market/cost_report.h"
#include "client/market/holdings.h"
#include "client/market/lease_view.h"
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
  ASSIGN_OR_RETURN(const std::vector<RunRow> rows, store->List());
  std::map<std::string, std::string> names;
  for (const RunRow& row : rows) names[row.run_id] = row.name;
  for (Lease& lease : leases) {
    for (LeaseUse& use : lease.uses) {
      const auto found = names.find(use.run_id);
      if (found != names.end()) use.run_name = found->second;
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

}  // namespace

absl::StatusOr<int> CmdCost(CommandContext& context, std::vector<std::string> args) {
  std::string since, by_text = "run";
  bool csv = false;
  VerbParser parser(
      context, "cost [FLAGS]",
      "Sums what the machines cost that this gpuctl rented, by its own ledger: at least\n"
      "and at most, as the providers do not tell the second in which a bill ends. Traffic\n"
      "that Vast.ai charges for counts as the machines last reported it. Volumes are not in\n"
      "it.",
      "Runs that used a machine at the same time share its cost by their GPUs. The time in\n"
      "which none of several runs used it is (idle); by batch it belongs to the batch.\n\n"
      "  gpuctl cost --by batch              each batch with its machines\n"
      "  gpuctl cost --since 30d --by gpu    the last 30 days\n"
      "  gpuctl cost --by day --csv          for a spreadsheet");
  parser.Option("--since", since, "Only what was billed in this time, such as 30d (default: all)");
  parser.Option("--by", by_text, "run, batch, gpu, provider or day (of UTC)");
  parser.Switch("--csv", csv, "As CSV, in USD and hours");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(const CostBy by, ParseCostBy(by_text));
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
  const CostReport report = SumCosts(leases, by, since_ms, now_ms, batch_of);
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
  if (report.rows.empty()) context.Say("nothing was rented");
  return kExitOk;
}

}  // namespace gpuctl
