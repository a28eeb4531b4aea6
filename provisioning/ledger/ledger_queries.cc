// The ledger's queries, and its data beside the leases: places to avoid, listings.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/sqlite/sqlite.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/ledger/ledger_rows.h"

namespace gpuctl {
namespace {

constexpr char kIsOpen[] = "state IN ('intent', 'rented', 'releasing')";

}  // namespace

absl::StatusOr<std::vector<Lease>> Ledger::Select(const std::string& where,
                                                  const std::vector<std::string>& values) {
  return SelectLeases(database_, where, values);
}

absl::StatusOr<Lease> Ledger::Get(absl::string_view lease_id) {
  ASSIGN_OR_RETURN(std::vector<Lease> leases, Select("lease_id = ?", {std::string(lease_id)}));
  if (leases.empty()) {
    return absl::NotFoundError(absl::StrCat("look up lease ", lease_id, ": not in the ledger"));
  }
  return std::move(leases.front());
}

absl::StatusOr<std::vector<Lease>> Ledger::List(bool open_only) {
  return Select(open_only ? kIsOpen : "1", {});
}

absl::StatusOr<std::vector<Lease>> Ledger::OpenOrOf(const std::vector<std::string>& run_ids) {
  return Select(absl::StrCat(kIsOpen,
                             " OR lease_id IN (SELECT lease_id FROM uses WHERE run_id IN "
                             "(SELECT value FROM json_each(?)))"),
                {nlohmann::json(run_ids).dump()});
}

absl::StatusOr<std::optional<Lease>> Ledger::OfRun(absl::string_view run_id) {
  ASSIGN_OR_RETURN(
      std::vector<Lease> leases,
      Select("lease_id IN (SELECT lease_id FROM uses WHERE run_id = ?)", {std::string(run_id)}));
  if (leases.empty()) return std::optional<Lease>();
  return std::optional<Lease>(std::move(leases.back()));
}

absl::Status Ledger::Exclude(absl::string_view place, absl::Duration how_long,
                             absl::string_view reason) {
  const int64_t until_ms = NowMs() + absl::ToInt64Milliseconds(how_long);
  return Write("exclude", [&] {
    return SqliteStatement(database_,
                           "INSERT OR REPLACE INTO places (place, until_ms, reason) "
                           "VALUES (?, ?, ?)",
                           "exclude a place")
        .Bind(place)
        .Bind(until_ms)
        .Bind(reason)
        .Run();
  });
}

absl::StatusOr<std::vector<ExcludedPlace>> Ledger::Excluded() {
  SqliteStatement row(database_,
                      "SELECT place, until_ms, reason FROM places WHERE until_ms > ? "
                      "ORDER BY place",
                      "read the excluded places");
  row.Bind(NowMs());
  std::vector<ExcludedPlace> places;
  for (;;) {
    ASSIGN_OR_RETURN(const bool found, row.Step());
    if (!found) return places;
    places.push_back({row.Text(0), row.Int(1), row.Text(2)});
  }
}

absl::StatusOr<int> Ledger::ClearExcluded() {
  ASSIGN_OR_RETURN(const std::vector<ExcludedPlace> places, Excluded());
  RETURN_IF_ERROR(Write("forget places", [this] {
    return SqliteExecute(database_, "DELETE FROM places", "forget the excluded places");
  }));
  return static_cast<int>(places.size());
}

absl::Status Ledger::StorePriceRises(absl::string_view provider,
                                     const std::vector<PriceRise>& rises) {
  if (rises.empty()) {
    // Usually there are none, and none to delete.
    SqliteStatement row(database_, "SELECT 1 FROM price_rises WHERE provider = ? LIMIT 1",
                        "read price rises");
    row.Bind(provider);
    ASSIGN_OR_RETURN(const bool found, row.Step());
    if (!found) return absl::OkStatus();
  }
  return Write("price_rises", [&]() -> absl::Status {
    constexpr char kDoing[] = "note price rises";
    RETURN_IF_ERROR(SqliteStatement(database_, "DELETE FROM price_rises WHERE provider = ?", kDoing)
                        .Bind(provider)
                        .Run());
    for (const PriceRise& rise : rises) {
      RETURN_IF_ERROR(SqliteStatement(database_,
                                      "INSERT OR REPLACE INTO price_rises (provider, instance_id, "
                                      "rise_id, before_usd_per_hour, after_usd_per_hour, from_ms, "
                                      "also) VALUES (?, ?, ?, ?, ?, ?, ?)",
                                      kDoing)
                          .Bind(provider)
                          .Bind(rise.instance_id)
                          .Bind(rise.id)
                          .BindDouble(rise.before_usd_per_hour)
                          .BindDouble(rise.after_usd_per_hour)
                          .Bind(rise.from_ms)
                          .Bind(rise.also)
                          .Run());
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<Ledger::StoredPriceRise>> Ledger::PriceRises() {
  ASSIGN_OR_RETURN(const std::vector<Lease> open, List(/*open_only=*/true));
  std::vector<StoredPriceRise> rises;
  SqliteStatement row(database_,
                      "SELECT provider, instance_id, rise_id, before_usd_per_hour, "
                      "after_usd_per_hour, from_ms, also FROM price_rises "
                      "ORDER BY provider, instance_id",
                      "read price rises");
  for (;;) {
    ASSIGN_OR_RETURN(const bool found, row.Step());
    if (!found) return rises;
    for (const Lease& lease : open) {
      if (lease.provider != row.Text(0) || lease.instance_id != row.Text(1)) continue;
      PriceRise rise;
      rise.instance_id = row.Text(1);
      rise.id = row.Text(2);
      rise.before_usd_per_hour = row.Double(3);
      rise.after_usd_per_hour = row.Double(4);
      rise.from_ms = row.Int(5);
      rise.also = row.Text(6);
      rises.push_back({lease, std::move(rise)});
    }
  }
}

absl::Status Ledger::StoreListing(const MarketListing& listing) {
  return Write("listing", [&] { return InsertListing(database_, listing); });
}

absl::StatusOr<std::vector<MarketListing>> Ledger::LastListings() {
  return SelectListings(database_);
}

}  // namespace gpuctl
