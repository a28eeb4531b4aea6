// gpuctl offers: print one price table over all providers.
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/exit_codes.h"
#include "client/base/gpu_memory.h"
#include "client/base/quantity.h"
#include "client/config/read_run_file.h"
#include "client/config/resource_flags.h"
#include "client/config/settings.h"
#include "client/keys/ask_markets.h"
#include "client/keys/market_access.h"
#include "client/market/holdings.h"
#include "client/market/offer_plan.h"
#include "client/market/volumes.h"
#include "client/spec/run_spec.h"
#include "client/terminal/console.h"
#include "client/terminal/panel_terminal.h"
#include "client/terminal/table.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

using Json = nlohmann::ordered_json;

std::string Price(double usd) { return absl::StrFormat("%.*f", usd < 0.1 ? 3 : 2, usd); }

std::string Optional(const std::optional<double>& usd) {
  return usd.has_value() ? absl::StrFormat("%.3g", *usd) : "-";
}

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

// Returns the price of traffic up and down, in USD per GB.
std::string Traffic(const Offer& offer) {
  if (!offer.upload_usd_per_gb.has_value() && !offer.download_usd_per_gb.has_value()) return "-";
  return absl::StrCat(Optional(offer.upload_usd_per_gb), "/", Optional(offer.download_usd_per_gb));
}

// Returns the table's head. The columns that matter most fit into 80 characters; the rest is -o
// wide.
TableRow Header(bool wide) {
  TableRow row = {"USD/H", "PER GPU", "GPU", "COUNT", "MEMORY", "UP/DOWN/GB", "PROVIDER", "REGION"};
  if (wide) {
    row.insert(row.end(), {"CUDA", "RELIABLE", "DISK/GB/MO", "MOST DISK", "SPOT", "PLACE", "OFFER",
                           "DESCRIPTION"});
  }
  return row;
}

TableRow Row(const Offer& offer, bool wide) {
  const int count = std::max(offer.gpu_count, 1);
  TableRow row = {Price(offer.price_usd_per_hour),
                  Price(offer.price_usd_per_hour / count),
                  OrDash(offer.gpu_name),
                  offer.gpu_count == 0 ? "-" : absl::StrCat(offer.gpu_count),
                  offer.gpu_memory_bytes == 0 ? "-" : FormatGpuMemory(offer.gpu_memory_bytes),
                  Traffic(offer),
                  offer.provider,
                  OrDash(offer.region)};
  if (wide) {
    row.insert(
        row.end(),
        {OrDash(offer.cuda_version),
         offer.reliability.has_value() ? absl::StrFormat("%.1f%%", *offer.reliability * 100) : "-",
         Optional(offer.disk_usd_per_gb_month),
         offer.disk_bytes == 0 ? "-" : FormatBytes(offer.disk_bytes), offer.spot ? "yes" : "no",
         OrDash(offer.place), OrDash(offer.ref), OrDash(offer.description)});
  }
  return row;
}

Json OrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }
Json OrNull(const std::optional<double>& value) {
  return value.has_value() ? Json(*value) : Json();
}
Json OrNull(int64_t value) { return value == 0 ? Json() : Json(value); }

Json OfferJson(const Offer& offer, const std::string& reason) {
  return {{"provider", offer.provider},
          {"offer", offer.ref},
          {"description", offer.description},
          {"price_usd_per_hour", offer.price_usd_per_hour},
          {"gpu", OrNull(offer.gpu_name)},
          {"gpu_count", OrNull(int64_t{offer.gpu_count})},
          {"gpu_memory_bytes", OrNull(offer.gpu_memory_bytes)},
          {"region", OrNull(offer.region)},
          {"cuda_version", OrNull(offer.cuda_version)},
          {"reliability", OrNull(offer.reliability)},
          {"disk_bytes", OrNull(offer.disk_bytes)},
          {"disk_usd_per_gb_month", OrNull(offer.disk_usd_per_gb_month)},
          {"upload_usd_per_gb", OrNull(offer.upload_usd_per_gb)},
          {"download_usd_per_gb", OrNull(offer.download_usd_per_gb)},
          {"spot", offer.spot},
          {"place", OrNull(offer.place)},
          {"left_out_because", OrNull(reason)}};
}

void PrintJson(const CommandContext& context, const OfferPlan& plan, const Settings& settings,
               bool explain) {
  std::vector<Json> offers, left_out;
  for (const Offer& offer : plan.offers) offers.push_back(OfferJson(offer, ""));
  if (explain) {
    for (const LeftOut& entry : plan.left_out) {
      left_out.push_back(OfferJson(entry.offer, entry.reason));
    }
  }
  if (context.format == OutputFormat::kJsonLines) {
    offers.insert(offers.end(), left_out.begin(), left_out.end());
    context.PrintJsonList("offers", offers);
    return;
  }
  Json providers = Json::array();
  for (const MarketAnswer& market : plan.markets) {
    Json error;
    if (!market.status.ok()) {
      error = {{"code", absl::StatusCodeToString(market.status.code())},
               {"message", std::string(market.status.message())}};
    }
    providers.push_back({{"provider", market.market}, {"offers", market.offers}, {"error", error}});
  }
  context.PrintJson({{"offers", offers},
                     {"left_out", left_out},
                     {"providers", providers},
                     {"defaults", Json(settings.UsedJson())}});
}

// Prints a table. On a terminal only the columns for which it has room; -o wide shows all.
void PrintRows(const CommandContext& context, const std::vector<TableRow>& rows) {
  if (!context.terminal.stdout_tty || context.format == OutputFormat::kWide) {
    return context.PrintTable(rows);
  }
  context.PrintTableWrapped(rows, GetTerminalSize(STDOUT_FILENO).columns,
                            {"UP/DOWN/GB", "PER GPU", "MEMORY"});
}

void PrintTables(const CommandContext& context, const OfferPlan& plan, bool explain) {
  const bool wide = context.format == OutputFormat::kWide;
  std::vector<TableRow> rows = {Header(wide)};
  for (const Offer& offer : plan.offers) rows.push_back(Row(offer, wide));
  if (!plan.offers.empty()) PrintRows(context, rows);
  if (!explain || plan.left_out.empty()) return;
  rows = {Header(wide)};
  rows[0].emplace_back("LEFT OUT BECAUSE");
  for (const LeftOut& entry : plan.left_out) {
    TableRow row = Row(entry.offer, wide);
    row.emplace_back(entry.reason);
    rows.push_back(std::move(row));
  }
  if (!plan.offers.empty()) context.PrintLine("");
  PrintRows(context, rows);
}

// Names the markets that failed, also when others have offers; else nobody would notice that one is
// missing.
void PrintFailures(const CommandContext& context, const OfferPlan& plan) {
  for (const MarketAnswer& market : plan.markets) {
    if (market.status.ok()) continue;
    context.Warn(absl::StrCat("no offers from ", market.market, ": ", market.status.message()));
    const std::string hint = HintOf(ExplainMarketError(market.status, market.market));
    if (!hint.empty()) context.Hint(hint);
  }
}

// Applies the defaults for launches from here to `spec`, and tells which. They come before the
// flags. Of their providers only those that rent machines out count.
absl::StatusOr<Settings> ApplyDefaults(CommandContext& context, const ResourceFlags& flags,
                                       RunSpec& spec) {
  NoteResourceFlags(flags, spec);
  ASSIGN_OR_RETURN(const Settings all, ReadSettings(context, "."));
  std::vector<Setting> wanted;
  for (const Setting& setting : all.effective()) {
    const absl::string_view key = setting.key.key;
    const bool of_offers = absl::StartsWith(key, "resources.") && key != "resources.image" &&
                           key != "resources.on_price_rise";
    RunSpec scratch;
    if (key == "resources.provider" &&
        (!SetRunField(key, setting.value, "", scratch).ok() || !NamesMarket(scratch))) {
      continue;
    }
    if (of_offers) wanted.push_back(setting);
  }
  Settings settings = Settings::Of(std::move(wanted), {}, {});
  RETURN_IF_ERROR(settings.Apply(/*rented=*/false, spec));
  RETURN_IF_ERROR(settings.Apply(/*rented=*/true, spec));
  spec.providers.erase(std::remove_if(spec.providers.begin(), spec.providers.end(),
                                      [](const std::string& name) { return !IsRental(name); }),
                       spec.providers.end());
  for (const std::string& line : settings.UsedLines()) {
    context.Say(absl::StrCat("only what launch would take: ", line));
  }
  return settings;
}

}  // namespace

absl::StatusOr<int> CmdOffers(CommandContext& context, std::vector<std::string> args) {
  ResourceFlags flags;
  bool explain = false, retry_places = false, quiet = false;
  VerbParser parser(context, "offers [FLAGS]",
                    "Lists what you could rent now, at all providers you have a key for, cheapest\n"
                    "first. Prices are for the whole machine with the disk asked for. Disk by the\n"
                    "month and traffic cost extra and have columns of their own.",
                    "  gpuctl offers --gpu H100 --max-price 3\n"
                    "  gpuctl offers --gpu 24GB..48GB:2 --region EU --provider vast --explain\n"
                    "  gpuctl offers --gpu H100 -q | head -n 1     the cheapest");
  AddResourceFlags(parser, "Wishes", /*image=*/false, flags);
  parser.Switch("--explain", explain, "Show also what was left out, and why");
  parser.Switch("--retry-places", retry_places,
                "Forget where machines were bad; launches try those places again");
  parser.Quiet(quiet, "PROVIDER/OFFER");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  Holdings holdings(context);
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.FindLedger());
  if (retry_places && ledger != nullptr) {
    ASSIGN_OR_RETURN(const int forgotten, ledger->ClearExcluded());
    context.Say(absl::StrCat(forgotten, forgotten == 1 ? " place is" : " places are",
                             " tried again from now on"));
  }
  RunSpec spec;
  ASSIGN_OR_RETURN(const Settings settings, ApplyDefaults(context, flags, spec));
  RETURN_IF_ERROR(ApplyResourceFlags(flags, "offers", spec));
  for (const std::string& name : spec.providers) RETURN_IF_ERROR(CheckMarketName(name));
  ASSIGN_OR_RETURN(const std::vector<Market> markets, OpenMarkets(context, spec.providers));
  std::vector<Provider*> providers;
  for (const Market& market : markets) providers.push_back(market.provider.get());
  Requirements requirements = RequirementsOf(spec);
  ServeOnly(NodePrograms::Find(), requirements);
  if (!spec.volume.name.empty()) {
    ASSIGN_OR_RETURN(requirements.volume, FindVolume(providers, spec.volume));
  }
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  RETURN_IF_ERROR(CheckMarketPatience());
  OfferPlan plan = AskMarkets(markets, requirements, explain, AnswerTimesPath(paths));
  const absl::Status status = CheckPlan(plan, requirements);
  if (ledger != nullptr) {
    ASSIGN_OR_RETURN(const std::vector<ExcludedPlace> bad, ledger->Excluded());
    if (const int left_out = LeaveOutBadPlaces(bad, plan); left_out > 0) {
      context.Say(absl::StrCat(left_out, left_out == 1 ? " offer is" : " offers are",
                               " left out, where a machine was bad lately: --explain shows them, "
                               "--retry-places forgets that"));
    }
  }
  if (context.json()) {
    // With `explain` the result says more than the error.
    if (!status.ok() && !explain) return status;
    PrintJson(context, plan, settings, explain);
    return status.ok() ? kExitOk : ExitCodeOf(status);
  }
  if (quiet) {
    for (const Offer& offer : plan.offers) {
      context.PrintLine(absl::StrCat(offer.provider, "/", offer.ref));
    }
  } else {
    PrintTables(context, plan, explain);
  }
  RETURN_IF_ERROR(status);
  PrintFailures(context, plan);
  if (spec.gpu.empty() && !quiet) {
    context.Hint("these have one GPU; gpuctl offers --gpu H100:8 lists machines with eight");
  }
  return kExitOk;
}

}  // namespace gpuctl
