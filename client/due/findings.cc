#include "client/due/findings.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/bill/lease_view.h"
#include "client/keys/market_access.h"
#include "client/market/instance_target.h"
#include "client/market/machine_users.h"
#include "client/market/price_rises.h"
#include "provisioning/markets.h"

namespace gpuctl {

void TellFindings(CommandContext& context, RunStore* store, const Reconciliation& found) {
  for (const UnknownMarket& market : found.unknown) {
    context.Warn(absl::StrCat("it is not known what is rented at ", market.name, ": ",
                              market.cause.message()));
    for (const Lease& lease : market.leases) {
      context.Warn(absl::StrCat(lease.instance_id.empty() ? lease.label : lease.instance_id,
                                " may bill there, ", FormatUsdPerHour(lease), "/h"));
    }
  }
  for (const auto& [market, ahead] : found.wrong_clock) {
    context.Note(
        absl::StrCat("this computer's clock is ", HumanDuration(absl::AbsDuration(ahead)),
                     ahead > absl::ZeroDuration() ? " ahead of " : " behind ", market,
                     "'s: no limit there can be judged by it, and what it says of times and costs "
                     "is wrong; set the clock"),
        Tone::kAlarm);
  }
  for (const PriceNote& note : found.price_changes) {
    context.Warn(absl::StrCat("the price of ", note.lease.instance_id, " at ", note.lease.provider,
                              " went from ", FormatUsdPerHour(note.before_usd_per_hour), " to ",
                              FormatUsdPerHour(note.lease), "/h"));
  }
  for (const SeenInstance& seen : found.instances) {
    if (!seen.rise.has_value()) continue;
    context.Warn(DescribePriceRise(*seen.lease, *seen.rise, MaxPriceOf(store, *seen.lease),
                                   context.NowMs()));
  }
  for (const SeenInstance& seen : found.instances) {
    if (!seen.lease.has_value() || IsTroubled(seen.listed.instance)) continue;
    const std::string early = DescribeEarlyEnd(*seen.lease, context.NowMs());
    if (!early.empty()) context.Warn(early);
  }
  for (const SeenInstance* seen : found.Troubled()) {
    const Lease& lease = *seen->lease;
    const std::string name = RentedNodeName(seen->provider, lease.instance_id);
    context.Note(
        absl::StrCat(name, " of ", RunOf(lease), " is ", seen->listed.instance.status, ", seen ",
                     HumanDuration(absl::Milliseconds(context.NowMs() - lease.trouble_ms)),
                     " ago for the first time, and bills, ", FormatUsdPerHour(lease),
                     "/h; gpuctl down ", name, " ends it, gpuctl reap does so after ",
                     HumanDuration(absl::Seconds(lease.limits.salvage_s))),
        Tone::kAlarm);
  }
  for (const UnknownMarket& market : found.rises_unknown) {
    context.Warn(absl::StrCat("it is not known whether prices rise at ", market.name, ": ",
                              market.cause.message()));
  }
  for (const UnknownMarket& market : found.charges_unknown) {
    context.Warn(absl::StrCat("it is not known what ", market.name,
                              " has charged for traffic: ", market.cause.message()));
  }
  if (!found.unwritten.ok()) {
    context.Warn(
        absl::StrCat("this is so, but could not be written down: ", found.unwritten.message()));
  }
  for (const Lease& lease : found.ended_outside) {
    const int64_t idle_ms = store == nullptr ? 0 : IdleSinceMs(*store, lease).value_or(0);
    const bool idle_over = idle_ms > 0 && lease.limits.idle_s > 0 &&
                           context.NowMs() >= idle_ms + lease.limits.idle_s * 1000;
    context.Say(absl::StrCat(lease.instance_id, " at ", lease.provider,
                             idle_over
                                 ? " is gone: nothing ran on it for longer than its idle limit"
                                 : " ended by itself or by somebody else's hand"));
  }
  for (const Lease& lease : found.back) {
    context.Say(absl::StrCat(lease.instance_id, " at ", lease.provider,
                             " is there after all, with ", RunOf(lease),
                             ": the ledger knows it again"));
  }
  for (const Lease& lease : found.not_created) {
    context.Say(absl::StrCat("the machine asked for as ", lease.label, " at ", lease.provider,
                             " is not there: it was never created, or ended before gpuctl saw it"));
  }
}

std::string DescribeBill(absl::string_view provider, const Instance& instance,
                         absl::string_view why) {
  return absl::StrCat(instance.id, " at ", provider, ", ", FormatUsdPerHour(instance), "/h: ", why);
}

void TellLost(CommandContext& context, const Reconciliation& found) {
  for (const SeenInstance* lost : found.Lost()) {
    context.Note(
        absl::StrCat(
            "UNKNOWN: ", DescribeBill(lost->provider, lost->listed.instance, lost->listed.why),
            "; gpuctl down ", lost->provider, "/", lost->listed.instance.id, " ends it"),
        Tone::kAlarm);
  }
}

std::vector<std::string> MarketsWithoutKey(const std::vector<ReconcileMarket>& markets) {
  std::vector<std::string> names;
  for (const std::string& name : MarketNames()) {
    const bool asked =
        std::any_of(markets.begin(), markets.end(),
                    [&name](const ReconcileMarket& market) { return market.name == name; });
    if (!asked) names.push_back(name);
  }
  return names;
}

std::string DescribeUnsettled(const Lease& lease, int64_t now_ms) {
  const auto ago = [now_ms](int64_t from_ms) {
    return HumanDuration(absl::Milliseconds(std::max<int64_t>(0, now_ms - from_ms)));
  };
  const std::string where = absl::StrCat(lease.instance_id, " at ", lease.provider);
  if (lease.claimed_ms > 0) {
    const absl::Duration idle = absl::Seconds(lease.limits.idle_s);
    const bool idled =
        lease.limits.idle_s > 0 && absl::Milliseconds(now_ms - lease.rented_ms) > idle;
    return absl::StrCat(where, " was in use and is not listed any more: ",
                        idled ? absl::StrCat("it has probably ended itself (its idle limit, ",
                                             HumanDuration(idle), ")")
                              : "it may have ended, or the list may lag behind");
  }
  if (!lease.instance_id.empty()) {
    return absl::StrCat(where, " was rented ", ago(lease.rented_ms),
                        " ago and is not listed yet; it bills, ", FormatUsdPerHour(lease), "/h");
  }
  return absl::StrCat("something was asked for as ", lease.label, " at ", lease.provider, " ",
                      ago(lease.intended_ms), " ago, with no answer: it may still appear (",
                      FormatUsdPerHour(lease), "/h)");
}

std::string DescribeAsked(const std::vector<ReconcileMarket>& markets) {
  std::vector<std::string> asked;
  for (const ReconcileMarket& market : markets) asked.push_back(market.name);
  const std::vector<std::string> others = MarketsWithoutKey(markets);
  return absl::StrCat(absl::StrJoin(asked, ", "), others.empty() ? "" : "; ",
                      absl::StrJoin(others, ", "),
                      others.empty()       ? ""
                      : others.size() == 1 ? " has no key here, and was not asked"
                                           : " have no key here, and were not asked");
}

int ExitCodeOfFindings(const Reconciliation& found, bool leaks) {
  if (leaks || !found.Lost().empty() || !found.Troubled().empty()) return kExitLeak;
  int code = kExitOk;
  for (const UnknownMarket& market : found.unknown) {
    const int one = ExitCodeOf(ExplainMarketError(market.cause, market.name));
    if (code == kExitOk || one == kExitCredentials) code = one;
  }
  return code;
}

nlohmann::ordered_json UnknownToJson(const std::vector<UnknownMarket>& unknown) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const UnknownMarket& market : unknown) {
    nlohmann::ordered_json leases = nlohmann::ordered_json::array();
    for (const Lease& lease : market.leases) leases.push_back(lease.lease_id);
    list.push_back({{"provider", market.name},
                    {"cause", std::string(market.cause.message())},
                    {"leases", leases}});
  }
  return list;
}

}  // namespace gpuctl
