#include "client/bill/lease_view.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/base/quantity.h"
#include "provisioning/ledger/listing.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

using Json = nlohmann::ordered_json;

// A job's time between SIGTERM and SIGKILL, in milliseconds (architecture: StopJob).
constexpr int64_t kGraceMs = 60'000;
constexpr double kMillisPerHour = 3'600'000.0;

Json TextOrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }
Json TimeOrNull(int64_t ms) { return ms > 0 ? Json(FormatRfc3339(ms)) : Json(); }
Json MoreThanZero(double value) { return value > 0 ? Json(value) : Json(); }

const char* StateWord(Instance::State state) {
  switch (state) {
    case Instance::State::kStarting:
      return "starting";
    case Instance::State::kRunning:
      return "running";
    case Instance::State::kStopping:
      return "stopping";
    case Instance::State::kSilent:
      return "silent";
    case Instance::State::kFailed:
      break;
  }
  return "failed";
}

Json RiseJson(const PriceRise& rise) {
  Json json;
  json["before_usd_per_hour"] = MoreThanZero(rise.before_usd_per_hour);
  json["after_usd_per_hour"] = MoreThanZero(rise.after_usd_per_hour);
  json["from"] = TimeOrNull(rise.from_ms);
  json["also"] = TextOrNull(rise.also);
  return json;
}

}  // namespace

std::string FormatUsdPerHour(double usd_per_hour) {
  return usd_per_hour > 0 ? absl::StrFormat("$%.2f", usd_per_hour) : "?";
}

std::string FormatUsdPerHour(const Lease& lease) {
  const bool free = lease.BillsNothing() || lease.provider == kClusterProvider;
  return free ? "$0.00" : FormatUsdPerHour(lease.usd_per_hour());
}

std::string DescribeHighestPrice(const Lease& lease) {
  if (lease.provider == kClusterProvider) return "no price";
  return absl::StrCat(FormatUsdPerHour(lease.HighestUsdPerHour()), "/h");
}

std::string FormatUsdPerHour(const Instance& instance) {
  return instance.bills_nothing ? "$0.00" : FormatUsdPerHour(instance.price_usd_per_hour);
}

std::string DescribeEarlyEnd(const Lease& lease, int64_t now_ms) {
  if (!lease.open() || lease.ends_ms <= now_ms) return "";
  const int64_t from_ms =
      std::max(lease.claimed_ms, lease.uses.empty() ? 0 : lease.uses.back().from_ms);
  const int64_t needed_ms = (lease.limits.time_s + lease.limits.salvage_s) * 1000;
  if (from_ms == 0 || lease.ends_ms >= from_ms + needed_ms) return "";
  return absl::StrCat(lease.provider, "/", lease.instance_id, " (", RunOf(lease),
                      "): it is taken back at ", FormatRfc3339(lease.ends_ms), ", in ",
                      HumanDuration(absl::Milliseconds(lease.ends_ms - now_ms)),
                      "; what is not at home by then stays on a disk that bills, or is lost");
}

std::string FormatSpend(const Spend& spend, int digits) {
  const std::string low = absl::StrFormat("%.*f", digits, spend.low_usd);
  const std::string high = absl::StrFormat("%.*f", digits, spend.high_usd);
  const double least = std::pow(10.0, -digits);
  if (spend.high_usd > 0 && low == high && spend.high_usd < least / 2) {
    return absl::StrFormat("<$%.*f", digits, least);
  }
  return low == high ? absl::StrCat("$", low) : absl::StrCat("$", low, "-", high);
}

std::string DescribeLeaseLimits(const LeaseLimits& limits) {
  std::vector<std::string> parts;
  const auto seconds = [&parts](const char* name, int64_t count) {
    if (count > 0) parts.push_back(absl::StrCat(name, " ", HumanDuration(absl::Seconds(count))));
  };
  seconds("time", limits.time_s);
  if (limits.cost_usd > 0) parts.push_back(absl::StrCat("cost ", FormatUsd(limits.cost_usd)));
  seconds("idle", limits.idle_s);
  seconds("salvage", limits.salvage_s);
  seconds("lease", limits.contact_s);
  return absl::StrJoin(parts, ", ");
}

std::string DescribeRaise(const LeaseLimits& before, const LeaseLimits& after) {
  std::vector<std::string> parts;
  const auto add = [&parts](const char* name, const std::string& was, const std::string& is) {
    if (was != is) parts.push_back(absl::StrCat(name, " ", was, " -> ", is));
  };
  const auto seconds = [&add](const char* name, int64_t was, int64_t is) {
    if (is <= was) return;
    add(name, HumanDuration(absl::Seconds(was)), HumanDuration(absl::Seconds(is)));
  };
  seconds("idle", before.idle_s, after.idle_s);
  seconds("salvage", before.salvage_s, after.salvage_s);
  seconds("lease", before.contact_s, after.contact_s);
  if (after.cost_usd > before.cost_usd) {
    add("cost", FormatUsd(before.cost_usd), FormatUsd(after.cost_usd));
  }
  return absl::StrJoin(parts, ", ");
}

std::string DescribeRaiseBy(const Lease& lease, absl::string_view run_id) {
  for (size_t i = 1; i < lease.uses.size(); ++i) {
    const std::optional<LeaseLimits>&before = lease.uses[i - 1].limits,
          &after = lease.uses[i].limits;
    if (lease.uses[i].run_id != run_id || !before.has_value() || !after.has_value()) continue;
    const std::string raise = DescribeRaise(*before, *after);
    if (raise.empty()) return "";
    return absl::StrCat("raises the limits of its machine ", lease.provider, "/", lease.instance_id,
                        ": ", raise);
  }
  return "";
}

std::string FormatGpus(const std::string& name, int count) {
  if (name.empty()) return "-";
  return count > 1 ? absl::StrCat(count, "x ", name) : name;
}

std::string RunOf(const std::optional<Lease>& lease) {
  return lease.has_value() && !lease->uses.empty() ? lease->uses.back().run_name : "-";
}

int64_t JobStopsMs(const Lease& lease, int64_t started_ms, int64_t now_ms) {
  // An allocation that has begun has an end there. One in the queue uses no time.
  if (started_ms == 0 && lease.provider == kClusterProvider && lease.ends_ms == 0) return 0;
  int64_t stops_ms = 0;
  const auto earlier = [&stops_ms](int64_t ms) {
    stops_ms = stops_ms == 0 ? ms : std::min(stops_ms, ms);
  };
  const int64_t begin_ms =
      started_ms > 0 ? started_ms : std::max(lease.rented_ms, lease.intended_ms);
  if (lease.limits.time_s > 0) earlier(begin_ms + lease.limits.time_s * 1000);
  if (lease.ends_ms > 0) earlier(lease.ends_ms);
  const double usd_per_hour = lease.usd_per_hour();
  if (lease.limits.cost_usd > 0 && usd_per_hour > 0) {
    const double left_usd = lease.limits.cost_usd - SpentOn(lease, now_ms).high_usd;
    const auto left_ms = static_cast<int64_t>(left_usd / usd_per_hour * kMillisPerHour);
    earlier(std::max(now_ms, now_ms + left_ms - kGraceMs - lease.limits.salvage_s * 1000));
  }
  return stops_ms;
}

std::string DescribeIdleEnd(const Lease& lease, int64_t since_ms, int64_t now_ms,
                            ResultsTime told) {
  const LeaseLimits& limits = lease.limits;
  if (limits.idle_s <= 0) return "";
  const int64_t first_ms = since_ms + limits.idle_s * 1000 - now_ms;
  const int64_t last_ms = since_ms + std::max(limits.idle_s, limits.salvage_s) * 1000 - now_ms;
  if (last_ms <= 0) return "";
  const std::string last = HumanDuration(absl::Milliseconds(last_ms));
  if (first_ms <= 0) return absl::StrCat("within ", last);
  const std::string first = absl::StrCat("in ", HumanDuration(absl::Milliseconds(first_ms)));
  if (first_ms == last_ms || told == ResultsTime::kNone) return first;
  return absl::StrCat(
      first, told == ResultsTime::kBrief ? " to " : " once its results are home, else in ", last);
}

nlohmann::ordered_json LeaseToJson(const Lease& lease, int64_t now_ms) {
  const Spend spend = SpentOn(lease, now_ms);
  Json json;
  json["lease_id"] = lease.lease_id;
  json["provider"] = lease.provider;
  json["instance_id"] = TextOrNull(lease.instance_id);
  json["label"] = lease.label;
  json["lease_state"] = LeaseStateName(lease.state);
  json["gpu"] = TextOrNull(lease.gpu_name);
  json["gpu_count"] = lease.gpu_count;
  json["region"] = TextOrNull(lease.region);
  json["spot"] = lease.spot;
  json["usd_per_hour"] = lease.BillsNothing() ? Json(0) : MoreThanZero(lease.usd_per_hour());
  json["spent_low_usd"] = spend.low_usd;
  json["spent_high_usd"] = spend.high_usd;
  json["traffic_usd"] = KnownTraffic(lease).usd;
  json["cost_limit_usd"] = MoreThanZero(lease.limits.cost_usd);
  json["market_end"] = TimeOrNull(lease.ends_ms);
  json["asked_for"] = TimeOrNull(lease.intended_ms);
  json["rented"] = TimeOrNull(lease.rented_ms);
  json["claimed"] = TimeOrNull(lease.claimed_ms);
  json["ended"] = TimeOrNull(lease.ended_ms);
  json["how_ended"] = TextOrNull(lease.how_ended);
  Json runs = Json::array();
  for (const LeaseUse& use : lease.uses) {
    runs.push_back({{"run_id", use.run_id}, {"name", use.run_name}});
  }
  json["runs"] = runs;
  return json;
}

nlohmann::ordered_json SeenToJson(const SeenInstance& seen, int64_t now_ms) {
  const Instance& instance = seen.listed.instance;
  Json json;
  json["provider"] = seen.provider;
  json["instance_id"] = instance.id;
  json["label"] = TextOrNull(instance.label);
  json["whose"] = HolderName(seen.listed.holder);
  json["why"] = TextOrNull(seen.listed.why);
  json["state"] = StateWord(instance.state);
  json["provider_status"] = TextOrNull(instance.status);
  json["gpu"] = TextOrNull(instance.gpu_name);
  json["gpu_count"] = instance.gpu_count;
  json["region"] = TextOrNull(instance.region);
  json["spot"] = instance.spot;
  json["usd_per_hour"] =
      instance.bills_nothing ? Json(0) : MoreThanZero(instance.price_usd_per_hour);
  json["created"] = TimeOrNull(instance.created_ms);
  const bool in_ledger = !instance.tells_end && seen.lease.has_value();
  json["ends"] = TimeOrNull(in_ledger ? seen.lease->ends_ms : instance.ends_ms);
  json["price_rise"] = seen.rise.has_value() ? RiseJson(*seen.rise) : Json();
  json["lease"] = seen.lease.has_value() ? LeaseToJson(*seen.lease, now_ms) : Json();
  return json;
}

}  // namespace gpuctl
