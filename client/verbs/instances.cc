// gpuctl instances: everything that bills now, from the providers themselves, against the ledger.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/market/lease_view.h"
#include "client/market/volumes.h"
#include "client/rent/findings.h"
#include "client/rent/holdings.h"
#include "client/terminal/console.h"
#include "client/terminal/line_assembler.h"
#include "client/terminal/table.h"
#include "client/verbs/money_verbs.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "provisioning/ledger/listing.h"

namespace gpuctl {
namespace {

std::string Age(int64_t from_ms, int64_t now_ms) {
  if (from_ms <= 0) return "-";
  return HumanDuration(absl::Milliseconds(std::max<int64_t>(0, now_ms - from_ms)));
}

std::vector<std::string> Row(const CommandContext& context, const SeenInstance& seen,
                             int64_t now_ms) {
  const Instance& instance = seen.listed.instance;
  const int64_t since_ms = seen.lease.has_value() ? seen.lease->intended_ms : instance.created_ms;
  std::string whose(HolderName(seen.listed.holder));
  if (!seen.listed.why.empty()) absl::StrAppend(&whose, ": ", seen.listed.why);
  // What providers and other people wrote is not trusted with a terminal.
  std::vector<std::string> cells = {
      seen.provider,
      SanitizeLine(instance.id),
      SanitizeLine(FormatGpus(instance.gpu_name, instance.gpu_count)),
      FormatUsdPerHour(instance.price_usd_per_hour),
      seen.lease.has_value() ? FormatSpend(SpentOn(*seen.lease, now_ms)) : "-",
      Age(since_ms, now_ms),
      instance.status.empty() ? "-" : SanitizeLine(instance.status),
      RunOf(seen.lease)};
  if (context.format == OutputFormat::kWide) {
    cells.push_back(instance.label.empty() ? "-" : SanitizeLine(instance.label));
    cells.push_back(instance.region.empty() ? "-" : SanitizeLine(instance.region));
  }
  cells.push_back(whose);
  if (seen.listed.holder == Holder::kLeak) {
    for (std::string& cell : cells) cell = Red(cell, context.terminal.colour);
  }
  return cells;
}

// Of the markets that were asked; those that failed are told of already.
VolumeList VolumesOf(const Holdings& holdings, const Reconciliation& found) {
  std::vector<Provider*> providers;
  for (const ReconcileMarket& market : holdings.markets()) {
    const bool failed = std::any_of(
        found.unknown.begin(), found.unknown.end(),
        [&market](const UnknownMarket& unknown) { return unknown.name == market.name; });
    if (market.provider != nullptr && !failed) providers.push_back(market.provider);
  }
  return ListVolumes(providers);
}

void PrintJson(const CommandContext& context, const Reconciliation& found,
               const VolumeList& volumes, int64_t now_ms) {
  std::vector<std::string> instances, unsettled;
  for (const SeenInstance& seen : found.instances) instances.push_back(SeenToJson(seen, now_ms));
  if (context.format == OutputFormat::kJsonLines) {
    PrintJsonList(context, "instances", instances);
    return;
  }
  for (const Lease& lease : found.unsettled) unsettled.push_back(LeaseToJson(lease, now_ms));
  std::vector<std::string> stored;
  for (const Volume& volume : volumes.volumes) stored.push_back(VolumeToJson(volume));
  PrintOut(absl::StrCat(
      WithSchemaVersion(absl::StrCat("{\"instances\":[", absl::StrJoin(instances, ","),
                                     "],\"unsettled\":[", absl::StrJoin(unsettled, ","),
                                     "],\"unknown\":", UnknownToJson(found.unknown),
                                     ",\"volumes\":[", absl::StrJoin(stored, ","),
                                     "],\"unknown_volumes\":", UnknownVolumesToJson(volumes), "}")),
      "\n"));
}

}  // namespace

absl::StatusOr<int> ShowInstances(CommandContext& context, Holdings& holdings) {
  ASSIGN_OR_RETURN(const Reconciliation found,
                   Reconcile(holdings.ledger(), holdings.markets(), context.clock));
  const int64_t now_ms = context.NowMs();
  const bool leaks = !found.Leaks().empty();
  const VolumeList volumes = VolumesOf(holdings, found);
  if (context.json()) {
    PrintJson(context, found, volumes, now_ms);
    return ExitCodeOfFindings(found, leaks);
  }
  std::vector<std::vector<std::string>> table = {
      {"PROVIDER", "INSTANCE", "GPU", "$/H", "SPENT", "AGE", "STATE", "RUN"}};
  if (context.format == OutputFormat::kWide) table[0].insert(table[0].end(), {"LABEL", "REGION"});
  table[0].push_back("WHOSE");
  for (const SeenInstance& seen : found.instances) table.push_back(Row(context, seen, now_ms));
  PrintOut(FormatTable(table));
  if (!volumes.volumes.empty()) {
    PrintOut(absl::StrCat("\n", FormatTable(VolumeRows(volumes.volumes))));
  }
  TellFindings(context, found);
  for (const auto& [market, cause] : volumes.unknown) {
    PrintProgress(context,
                  absl::StrCat("gpuctl: volumes at ", market, ": UNKNOWN: ", cause.message()));
  }
  for (const Lease& lease : found.unsettled) {
    PrintProgress(context, absl::StrCat("gpuctl: something was asked for as ", lease.label, " at ",
                                        lease.provider, " ", Age(lease.intended_ms, now_ms),
                                        " ago, with no answer: it may still appear (",
                                        FormatUsdPerHour(lease.usd_per_hour()), "/h)"));
  }
  if (leaks || !found.unsettled.empty()) {
    PrintProgress(context, "HINT: gpuctl reap ends what nobody wants");
  } else if (found.instances.empty() && found.unknown.empty()) {
    PrintProgress(context,
                  volumes.volumes.empty() ? "gpuctl: nothing bills" : "gpuctl: no machine bills");
  }
  return ExitCodeOfFindings(found, leaks);
}

absl::StatusOr<int> CmdInstances(CommandContext& context, std::vector<std::string> args) {
  VerbParser parser(
      context, "instances [FLAGS]",
      "Lists everything that bills now, from the providers themselves, against the\n"
      "ledger: whose it is, what it costs, which run uses it, and the volumes, which\n"
      "bill without a machine too. Exits with 117 when something of ours bills that\n"
      "nobody wants.");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(std::move(args)));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(Holdings holdings, Holdings::Open(context));
  return ShowInstances(context, holdings);
}

}  // namespace gpuctl
