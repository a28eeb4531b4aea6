#include "client/market/price_rises.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/quantity.h"
#include "client/bill/lease_view.h"
#include "client/keys/market_access.h"
#include "client/market/instance_target.h"
#include "client/spec/launch_record.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

std::string Price(double usd_per_hour) {
  return usd_per_hour > 0 ? absl::StrCat(FormatUsd(usd_per_hour), "/h") : "an unknown price";
}

std::string WhenText(int64_t from_ms, int64_t now_ms) {
  if (from_ms <= 0) return "when its contract ends (it is not said when)";
  return absl::StrCat("when its contract ends, ", FormatRfc3339(from_ms), " (in ",
                      HumanDuration(absl::Milliseconds(std::max<int64_t>(0, from_ms - now_ms))),
                      ")");
}

}  // namespace

std::optional<double> MaxPriceOf(RunStore* store, const Lease& lease) {
  if (store == nullptr || lease.uses.empty()) return std::nullopt;
  const absl::StatusOr<RunRow> row = store->Get(lease.uses.back().run_id);
  if (!row.ok()) return std::nullopt;
  const absl::StatusOr<LaunchRecord> record = ParseLaunchRecord(row->launch_json);
  return record.ok() ? record->spec.max_price_usd_per_hour : std::nullopt;
}

bool IsAbove(const PriceRise& rise, std::optional<double> max_usd_per_hour) {
  if (!max_usd_per_hour.has_value()) return false;
  return rise.after_usd_per_hour <= 0 || rise.after_usd_per_hour > *max_usd_per_hour;
}

std::string AfterRefusal(const PriceRise& rise) {
  return absl::StrCat("the old price holds until ",
                      rise.from_ms > 0 ? FormatRfc3339(rise.from_ms) : "its contract ends",
                      "; the contract is not extended then, and the machine expires: it stops for "
                      "good, and its disk "
                      "bills until it is ended. Pull results before");
}

std::string DescribePriceRise(const Lease& lease, const PriceRise& rise,
                              std::optional<double> max_usd_per_hour, int64_t now_ms) {
  std::string text = absl::StrCat(RentedNodeName(lease.provider, rise.instance_id));
  if (RunOf(lease) != "-") absl::StrAppend(&text, " (", RunOf(lease), ")");
  absl::StrAppend(&text, ": its host raises the price from ", Price(rise.before_usd_per_hour),
                  " to ", rise.after_usd_per_hour > 0 ? "at most " : "",
                  Price(rise.after_usd_per_hour), " ", WhenText(rise.from_ms, now_ms));
  if (!rise.also.empty()) absl::StrAppend(&text, "; also ", rise.also);
  if (IsAbove(rise, max_usd_per_hour)) {
    absl::StrAppend(&text, "; its run may cost ", Price(*max_usd_per_hour));
  }
  absl::StrAppend(&text, "; gpuctl price ", rise.instance_id, " --accept or --refuse answers");
  return text;
}

void TellStoredPriceRises(Holdings& holdings, RunStore& store, absl::string_view run_id,
                          int64_t now_ms, const std::function<void(absl::string_view)>& tell) {
  const absl::StatusOr<Ledger*> ledger = holdings.FindLedger();
  if (!ledger.ok() || *ledger == nullptr) return;
  const absl::StatusOr<std::vector<Ledger::StoredPriceRise>> rises = (*ledger)->PriceRises();
  if (!rises.ok()) return;
  for (const Ledger::StoredPriceRise& stored : *rises) {
    const Lease& lease = stored.lease;
    const bool used = std::any_of(lease.uses.begin(), lease.uses.end(),
                                  [&](const LeaseUse& use) { return use.run_id == run_id; });
    if (!run_id.empty() && !used) continue;
    tell(DescribePriceRise(lease, stored.rise, MaxPriceOf(&store, lease), now_ms));
  }
}

absl::Status RefreshPriceRises(Holdings& holdings) {
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.FindLedger());
  if (ledger == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<Lease> open, ledger->List(/*open_only=*/true));
  std::set<std::string> names;
  for (const Lease& lease : open) names.insert(lease.provider);
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const std::vector<Market> markets, holdings.Open({name}));
    ASSIGN_OR_RETURN(const std::vector<PriceRise> rises,
                     markets.front().provider->ListPriceRises());
    RETURN_IF_ERROR(ledger->StorePriceRises(name, rises));
  }
  return absl::OkStatus();
}

nlohmann::ordered_json PriceRiseToJson(const Lease& lease, const PriceRise& rise,
                                       std::optional<double> max_usd_per_hour) {
  const auto more_than_zero = [](double value) {
    return value > 0 ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
  };
  nlohmann::ordered_json json;
  json["provider"] = lease.provider;
  json["instance_id"] = rise.instance_id;
  json["run"] =
      RunOf(lease) == "-" ? nlohmann::ordered_json() : nlohmann::ordered_json(RunOf(lease));
  json["before_usd_per_hour"] = more_than_zero(rise.before_usd_per_hour);
  json["after_usd_per_hour"] = more_than_zero(rise.after_usd_per_hour);
  json["from"] = rise.from_ms > 0 ? nlohmann::ordered_json(FormatRfc3339(rise.from_ms))
                                  : nlohmann::ordered_json();
  json["max_usd_per_hour"] = more_than_zero(max_usd_per_hour.value_or(0));
  json["also"] = rise.also.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(rise.also);
  return json;
}

}  // namespace gpuctl
