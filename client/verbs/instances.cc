// gpuctl instances: list everything that bills now, from the providers, compared with the ledger.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/bill/lease_view.h"
#include "client/due/due_machines.h"
#include "client/due/findings.h"
#include "client/market/holdings.h"
#include "client/market/machine_users.h"
#include "client/market/volumes.h"
#include "client/rent/market_expiry.h"
#include "client/runs/pulled_record.h"
#include "client/terminal/console.h"
#include "client/terminal/panel_terminal.h"
#include "client/terminal/table.h"
#include "client/verbs/money_verbs.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "provisioning/ledger/listing.h"

namespace gpuctl {
namespace {

using Json = nlohmann::ordered_json;

std::string Age(int64_t from_ms, int64_t now_ms) {
  if (from_ms <= 0) return "-";
  return HumanDuration(absl::Milliseconds(std::max<int64_t>(0, now_ms - from_ms)));
}

// Returns since when no run is on the machine, in Unix milliseconds; 0 for one that is in use or is
// not wanted, and where it is not known.
int64_t IdleSince(RunStore* store, const SeenInstance& seen) {
  if (store == nullptr || !seen.lease.has_value() || seen.lease->state != LeaseState::kRented ||
      seen.listed.holder != Holder::kWanted) {
    return 0;
  }
  return IdleSinceMs(*store, *seen.lease).value_or(0);
}

// Returns the runs on the machine whose results are not all here, as far as this laptop knows;
// absent when it knows nothing.
std::optional<std::vector<std::string>> NotPulled(CommandContext& context, RunStore* store,
                                                  const Lease& lease) {
  const absl::StatusOr<ClientPaths> paths = context.Paths();
  if (!paths.ok() || store == nullptr) return std::nullopt;
  std::vector<std::string> names;
  for (const LeaseUse& use : lease.uses) {
    const absl::StatusOr<RunRow> row = store->Get(use.run_id);
    if (!row.ok() || row->accepted_ms == 0) continue;  // it is not in the list, or never began
    if (PulledRecord(paths->MirrorDir(use.run_id)).AllHomeMs() == 0) names.push_back(row->name);
  }
  return names;
}

// Returns "results at home", or "results of sweep-2 and 1 more not pulled".
std::string DescribeResults(const std::optional<std::vector<std::string>>& not_pulled) {
  if (!not_pulled.has_value()) return "results not pulled";
  if (not_pulled->empty()) return "results at home";
  const size_t more = not_pulled->size() - 1;
  return absl::StrCat("results of ", not_pulled->front(),
                      more == 0 ? "" : absl::StrCat(" and ", more, " more"), " not pulled");
}

bool EndsItself(Holdings& holdings, const SeenInstance& seen) {
  const absl::StatusOr<Provider*> provider = holdings.Find(seen.provider);
  return provider.ok() && (*provider)->traits().self_release() && seen.lease.has_value() &&
         seen.lease->limits.idle_s > 0;
}

// Returns "idle, ends in 9m 00s to 59m 00s, results of amber-fox-3 not pulled"; "" for a machine
// that is in use.
std::string IdleText(CommandContext& context, Holdings& holdings, RunStore* store,
                     const SeenInstance& seen, int64_t now_ms) {
  const int64_t since_ms = IdleSince(store, seen);
  if (since_ms == 0) return "";
  const bool itself = EndsItself(holdings, seen);
  std::string end = itself ? DescribeIdleEnd(*seen.lease, since_ms, now_ms, ResultsTime::kBrief)
                           : DescribeMarketEnd(*seen.lease, now_ms);
  if (itself && !end.empty()) end = absl::StrCat("ends ", end);
  return absl::StrCat("idle, ", end, end.empty() ? "" : ", ",
                      DescribeResults(NotPulled(context, store, *seen.lease)));
}

// Returns the same as JSON; null for a machine that is in use.
Json IdleToJson(CommandContext& context, Holdings& holdings, RunStore* store,
                const SeenInstance& seen) {
  const int64_t since_ms = IdleSince(store, seen);
  if (since_ms == 0) return Json();
  const std::optional<std::vector<std::string>> not_pulled = NotPulled(context, store, *seen.lease);
  Json json = {{"since", FormatRfc3339(since_ms)},
               {"ends", nullptr},
               {"ends_at_latest", nullptr},
               {"results_home", not_pulled.has_value() && not_pulled->empty()}};
  if (!EndsItself(holdings, seen)) return json;
  const LeaseLimits& limits = seen.lease->limits;
  json["ends"] = FormatRfc3339(since_ms + limits.idle_s * 1000);
  json["ends_at_latest"] =
      FormatRfc3339(since_ms + std::max(limits.idle_s, limits.salvage_s) * 1000);
  return json;
}

TableRow Row(const CommandContext& context, const SeenInstance& seen, const std::string& idle,
             int64_t now_ms) {
  const Instance& instance = seen.listed.instance;
  const int64_t since_ms = seen.lease.has_value() ? seen.lease->intended_ms : instance.created_ms;
  std::string whose(HolderName(seen.listed.holder));
  if (!seen.listed.why.empty()) absl::StrAppend(&whose, ": ", seen.listed.why);
  if (!idle.empty()) absl::StrAppend(&whose, ": ", idle);
  TableRow cells = {seen.provider,
                    instance.id,
                    FormatGpus(instance.gpu_name, instance.gpu_count),
                    FormatUsdPerHour(instance),
                    seen.lease.has_value() ? FormatSpend(SpentOn(*seen.lease, now_ms)) : "-",
                    Age(since_ms, now_ms),
                    instance.status.empty() ? "-" : instance.status,
                    RunOf(seen.lease)};
  if (context.format == OutputFormat::kWide) {
    cells.push_back(instance.label.empty() ? "-" : instance.label);
    cells.push_back(instance.region.empty() ? "-" : instance.region);
  }
  cells.push_back(whose);
  if (seen.listed.holder == Holder::kLeak || seen.listed.holder == Holder::kLost ||
      (seen.listed.holder == Holder::kWanted && IsTroubled(instance))) {
    for (Cell& cell : cells) cell.red = true;
  }
  return cells;
}

// True when one of these leases may be a machine that nobody uses.
bool MayBill(const std::vector<Lease>& unsettled) {
  return std::any_of(unsettled.begin(), unsettled.end(),
                     [](const Lease& lease) { return lease.claimed_ms == 0; });
}

// Returns the volumes of the markets that answered; the failed ones have been reported already.
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

void PrintJson(CommandContext& context, Holdings& holdings, RunStore* store,
               const Reconciliation& found, const VolumeList& volumes, int64_t now_ms) {
  std::vector<Json> instances, unsettled, ended, stored;
  for (const SeenInstance& seen : found.instances) {
    instances.push_back(SeenToJson(seen, now_ms));
    instances.back()["idle"] = IdleToJson(context, holdings, store, seen);
  }
  if (context.format == OutputFormat::kJsonLines) {
    context.PrintJsonList("instances", instances);
    return;
  }
  for (const Lease& lease : found.unsettled) unsettled.push_back(LeaseToJson(lease, now_ms));
  for (const Lease& lease : found.ended_outside) ended.push_back(LeaseToJson(lease, now_ms));
  for (const Volume& volume : volumes.volumes) stored.push_back(VolumeToJson(volume));
  context.PrintJson({{"instances", instances},
                     {"unsettled", unsettled},
                     {"ended", ended},
                     {"unknown", UnknownToJson(found.unknown)},
                     {"without_key", MarketsWithoutKey(holdings.markets())},
                     {"volumes", stored},
                     {"unknown_volumes", UnknownVolumesToJson(volumes)}});
}

}  // namespace

absl::StatusOr<int> ShowInstances(CommandContext& context, Holdings& holdings, RunStore* store,
                                  bool quiet) {
  ReconcileOptions options;
  options.serves = [&context](const std::vector<ServesQuestion>& machines) {
    return AreServed(context, machines);
  };
  options.successor = [store](const std::string& run_id) { return SuccessorOf(store, run_id); };
  ASSIGN_OR_RETURN(const Reconciliation found,
                   Reconcile(holdings.ledger(), holdings.markets(), context.clock, options));
  const int64_t now_ms = context.NowMs();
  const bool leaks = !found.Leaks().empty();
  const VolumeList volumes = VolumesOf(holdings, found);
  if (context.json()) {
    PrintJson(context, holdings, store, found, volumes, now_ms);
    return ExitCodeOfFindings(found, leaks);
  }
  if (quiet) {
    for (const SeenInstance& seen : found.instances) {
      context.PrintLine(absl::StrCat(seen.provider, "/", seen.listed.instance.id));
    }
    TellFindings(context, store, found);
    return ExitCodeOfFindings(found, leaks);
  }
  std::vector<TableRow> table = {
      {"PROVIDER", "INSTANCE", "GPU", "$/H", "SPENT", "AGE", "STATE", "RUN"}};
  if (context.format == OutputFormat::kWide) table[0].insert(table[0].end(), {"LABEL", "REGION"});
  table[0].push_back("WHOSE");
  for (const SeenInstance& seen : found.instances) {
    table.push_back(Row(context, seen, IdleText(context, holdings, store, seen, now_ms), now_ms));
  }
  PrintTableFor(context, std::move(table), {"STATE", "AGE", "SPENT"});
  if (!volumes.volumes.empty()) {
    context.PrintLine("");
    context.PrintTable(VolumeRows(volumes.volumes));
  }
  TellFindings(context, store, found);
  for (const auto& [market, cause] : volumes.unknown) {
    context.Warn(absl::StrCat("volumes at ", market, ": UNKNOWN: ", cause.message()));
  }
  for (const Lease& lease : found.unsettled) context.Warn(DescribeUnsettled(lease, now_ms));
  if (!found.Lost().empty()) {
    context.Hint("gpuctl reap asks what this ledger does not know whether it is in use");
  } else if (leaks || MayBill(found.unsettled)) {
    context.Hint("gpuctl reap ends what nobody wants");
  } else if (!found.unsettled.empty()) {
    context.Hint("gpuctl instances tells it for sure two minutes after the rent");
  } else if (found.instances.empty() && found.unknown.empty()) {
    const bool none = volumes.volumes.empty() && volumes.unknown.empty();
    context.Say(absl::StrCat(none ? "nothing bills at " : "no machine bills at ",
                             DescribeAsked(holdings.markets())));
  }
  return ExitCodeOfFindings(found, leaks);
}

absl::StatusOr<int> CmdInstances(CommandContext& context, std::vector<std::string> args) {
  bool quiet = false;
  VerbParser parser(
      context, "instances [FLAGS]",
      "Lists everything that bills now, from the providers themselves, against the\n"
      "ledger: whose it is, what it costs, which run uses it, and the volumes, which\n"
      "bill without a machine too. Exits with 117 when a machine of yours bills that\n"
      "nobody wants.",
      "  gpuctl instances\n"
      "  gpuctl instances -q                  PROVIDER/ID alone, as gpuctl down takes it");
  parser.Quiet(quiet, "PROVIDER/ID");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  Holdings holdings(context);
  holdings.OnlyEnds();
  RETURN_IF_ERROR(holdings.OpenAllMarkets());
  // Show what bills even when the list of runs cannot be read.
  RunStore* const store = context.StoreOrCopy().value_or(nullptr);
  return ShowInstances(context, holdings, store, quiet);
}

}  // namespace gpuctl
