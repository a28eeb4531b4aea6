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

TableRow CostTableRow(const std::string& key, const CostRow& row) {
  return {key, FormatSpend(row.spend), HumanDuration(absl::Milliseconds(row.billed_ms)),
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
  for (const CostRow& row : report.rows) table.push_back(CostTableRow(row.key, row));
  if (report.rows.size() > 1) table.push_back(CostTableRow("total", report.total));
  context.PrintTable(table);
  if (report.rows.empty()) context.Say("nothing was rented");
  return kExitOk;
}

}  // namespace gpuctl
