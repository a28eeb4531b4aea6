// The routes for bills: payments to the account, and the charges of each instance.
#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/cloudsim/vast.h"

namespace gpuctl::cloudsim {
namespace {

double Seconds(int64_t ms) { return static_cast<double>(ms) / 1000; }
double Rounded(double usd) { return std::round(usd * 1000) / 1000; }

struct Period {
  double from_s = 0;
  double to_s = 0;
};

// Returns the period {"column": {"gte": …, "lte": …}} of the filters; absent when they have none.
std::optional<Period> PeriodOf(const Call& call, const char* column) {
  const Json filters = Json::parse(call.Query("select_filters", "{}"), nullptr, false);
  if (!filters.is_object()) return std::nullopt;
  const Json range = filters.value(column, Json());
  if (!range.is_object()) return std::nullopt;
  Period period;
  period.from_s = NumberAt(range, "gte", NumberAt(range, "gt", -1));
  period.to_s = NumberAt(range, "lte", NumberAt(range, "lt", -1));
  if (period.from_s < 0 || period.to_s < 0) return std::nullopt;
  return period;
}

// Returns the page of `rows` that the call asks for, as the service wraps it.
Reply Page(const Call& call, const Json& rows, int64_t usual_limit, int64_t most) {
  int64_t limit = usual_limit;
  int64_t from = 0;
  (void)absl::SimpleAtoi(call.Query("limit"), &limit);
  limit = std::clamp<int64_t>(limit, 1, most);
  const std::string token = call.Query("after_token");
  if (!token.empty() && (!absl::SimpleAtoi(token, &from) || from < 0)) {
    return VastError(400, "invalid_token", "Invalid pagination token");
  }
  Json page = Json::array();
  const int64_t end = std::min<int64_t>(from + limit, static_cast<int64_t>(rows.size()));
  for (int64_t i = from; i < end; ++i) page.push_back(rows[static_cast<size_t>(i)]);
  const bool more = end < static_cast<int64_t>(rows.size());
  return JsonReply(200, {{"success", true},
                         {"count", page.size()},
                         {"total", rows.size()},
                         {"next_token", more ? Json(absl::StrCat(end)) : Json()},
                         {"results", page}});
}

// Returns the entry of one charge until now.
Json ChargeJson(const Charge& charge, int64_t now_ms) {
  const int64_t end_ms = charge.to_ms != 0 ? charge.to_ms : now_ms;
  const double hours = Seconds(end_ms - charge.from_ms) / 3600;
  return {{"start", charge.from_ms / 1000},
          {"end", end_ms / 1000},
          {"type", charge.kind},
          {"source", nullptr},
          {"description", absl::StrFormat("%.3f hours at $%.3f/hour", hours, charge.usd_per_hour)},
          {"amount", Rounded(Cost(charge, now_ms))},
          {"metadata", Json::object()},
          {"items", Json::array()}};
}

// Returns the charges of each of the account's instances that touch `period`.
Json Charges(World& world, const Account& account, const Period& period) {
  Json rows = Json::array();
  const int64_t now = world.Now();
  for (const auto& instance : world.instances) {
    if (instance->service != "vast" || instance->account != account.name) continue;
    const int64_t end_ms = instance->alive() ? now : instance->ended_ms;
    if (Seconds(end_ms) < period.from_s || Seconds(instance->created_ms) > period.to_s) continue;
    Json items = Json::array();
    for (const Charge& charge : instance->charges) items.push_back(ChargeJson(charge, now));
    const double up = static_cast<double>(instance->sent_bytes) / 1e9 *
                      NumberAt(instance->extra["offer"], "inet_up_cost");
    for (const auto& [kind, usd] : {std::pair{"bwd", instance->traffic_usd - up}, {"bwu", up}}) {
      if (usd <= 0) continue;
      Charge traffic;
      traffic.from_ms = instance->created_ms;
      traffic.to_ms = end_ms;
      traffic.kind = kind;
      items.push_back(ChargeJson(traffic, now));
      items.back()["amount"] = Rounded(usd);
    }
    Json metadata = Json::object();
    if (!instance->label.empty()) metadata["label"] = instance->label;
    rows.push_back({{"start", instance->created_ms / 1000},
                    {"end", end_ms / 1000},
                    {"type", "instance"},
                    {"source", absl::StrCat("instance-", instance->id)},
                    {"description", absl::StrCat("Instance ", instance->id, " Charges")},
                    {"amount", Rounded(instance->Billed(now))},
                    {"metadata", metadata},
                    {"items", items}});
  }
  return rows;
}

// The older report: payments, and with inc_charges also charges, whose numbers are text.
Reply OldInvoices(World& world, const Call& call, const Account& account) {
  const int64_t now = world.Now();
  Json rows = Json::array();
  rows.push_back({{"type", "payment"},
                  {"description", "Credit"},
                  {"amount", absl::StrFormat("%.3f", account.balance_usd)},
                  {"timestamp", 0}});
  double total = 0;
  const Period always{.from_s = 0, .to_s = Seconds(now)};
  for (const Json& row : Charges(world, account, always)) {
    total += NumberAt(row, "amount");
    if (call.Query("inc_charges") != "true" && call.Query("inc_charges") != "True") continue;
    for (const Json& item : row["items"]) {
      const double hours = (NumberAt(item, "end") - NumberAt(item, "start")) / 3600;
      const double amount = NumberAt(item, "amount");
      rows.push_back({{"type", "charge"},
                      {"description", absl::StrCat(StringAt(row, "source"), " ",
                                                   StringAt(item, "type"), " charge")},
                      {"quantity", absl::StrFormat("%.3f", hours)},
                      {"rate", absl::StrFormat("%.4f", hours > 0 ? amount / hours : 0)},
                      {"amount", absl::StrFormat("%.3f", amount)},
                      {"timestamp", item["end"]}});
    }
  }
  return JsonReply(200, {{"success", true},
                         {"invoices", rows},
                         {"current",
                          {{"charges", total},
                           {"service_fee", 0},
                           {"total", total},
                           {"credit", world.Balance(account)}}}});
}

// The account's one payment: its balance before the first rent.
Reply Invoices(const Call& call, const Account& account) {
  const std::optional<Period> period = PeriodOf(call, "when");
  if (!period.has_value()) {
    return JsonReply(200, {{"success", false},
                           {"error", "Invalid date range"},
                           {"count", 0},
                           {"total", 0},
                           {"results", Json::array()},
                           {"next_token", nullptr}});
  }
  Json rows = Json::array();
  rows.push_back({{"start", period->from_s},
                  {"end", period->from_s},
                  {"type", "credit"},
                  {"source", "stripe"},
                  {"description", "Credit"},
                  {"amount", -account.balance_usd},
                  {"metadata", {{"invoice_id", account.user_id}, {"service", "stripe_payments"}}},
                  {"items", Json::array()}});
  return Page(call, rows, 60, 100);
}

}  // namespace

std::optional<Reply> VastBilling(World& world, const Call& call, const Caller& caller) {
  const Account& account = *caller.account;
  if (call.Is("GET", "/api/v0/users/me/invoices")) return OldInvoices(world, call, account);
  if (call.Is("GET", "/api/v1/invoices")) return Invoices(call, account);
  if (call.Is("GET", "/api/v0/charges")) {
    const std::optional<Period> period = PeriodOf(call, "day");
    if (!period.has_value()) {
      return JsonReply(400, {{"success", false}, {"msg", "day needs gte and lte"}});
    }
    return Page(call, Charges(world, account, *period), 100, 500);
  }
  return std::nullopt;
}

}  // namespace gpuctl::cloudsim
