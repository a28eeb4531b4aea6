// What looks at a machine showed.
#include <algorithm>
#include <cmath>

#include "common/base/status_macros.h"
#include "common/sqlite/sqlite.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/ledger/ledger_rows.h"

namespace gpuctl {
namespace {

// The relative difference below which two prices are equal.
constexpr double kPriceEpsilon = 1e-6;

}  // namespace

absl::StatusOr<bool> Ledger::Seen(absl::string_view lease_id, int64_t seen_ms,
                                  std::optional<double> usd_per_hour, int64_t changed_by_ms) {
  bool changed = false;
  const absl::Status written = Write("seen", [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const Lease lease, Get(lease_id));
    RETURN_IF_ERROR(
        SqliteStatement(database_, "UPDATE leases SET seen_ms = MAX(seen_ms, ?) WHERE lease_id = ?",
                        "note a sight")
            .Bind(seen_ms)
            .Bind(lease_id)
            .Run());
    if (seen_ms < lease.seen_ms || !usd_per_hour.has_value() ||
        std::abs(*usd_per_hour - lease.usd_per_hour()) <= kPriceEpsilon * *usd_per_hour) {
      return absl::OkStatus();
    }
    changed = true;
    int64_t noticed_ms = seen_ms;
    if (changed_by_ms > 0) noticed_ms = std::clamp(changed_by_ms, lease.seen_ms, seen_ms);
    return InsertRate(database_, lease_id, {lease.seen_ms, noticed_ms, *usd_per_hour});
  });
  RETURN_IF_ERROR(written);
  return changed;
}

absl::StatusOr<bool> Ledger::Look(absl::string_view lease_id, int64_t seen_ms,
                                  const Instance& instance) {
  const bool troubled =
      instance.state == Instance::State::kFailed || instance.state == Instance::State::kSilent;
  const bool taken_back = troubled && instance.ends_ms > 0 && instance.ends_ms <= seen_ms;
  ASSIGN_OR_RETURN(const bool changed, Seen(lease_id, seen_ms, instance.told_price(),
                                            taken_back ? instance.ends_ms : 0));
  if (instance.tells_end) RETURN_IF_ERROR(SetEnds(lease_id, instance.ends_ms));
  if (instance.upload_usd_per_gb.has_value() || instance.download_usd_per_gb.has_value()) {
    RETURN_IF_ERROR(SetTrafficPrices(lease_id, instance.upload_usd_per_gb.value_or(0),
                                     instance.download_usd_per_gb.value_or(0)));
  }
  return changed;
}

absl::Status Ledger::SetEnds(absl::string_view lease_id, int64_t ends_ms) {
  ASSIGN_OR_RETURN(const Lease known, Get(lease_id));
  if (known.ends_ms == ends_ms) return absl::OkStatus();
  return Write("ends", [&] {
    return SqliteStatement(database_,
                           "INSERT OR REPLACE INTO ends (lease_id, ends_ms) VALUES (?, ?)",
                           "note when a machine is taken back")
        .Bind(lease_id)
        .Bind(ends_ms)
        .Run();
  });
}

absl::Status Ledger::SetTrouble(absl::string_view lease_id, bool troubled, int64_t seen_ms) {
  return Write("trouble", [&] {
    if (!troubled) {
      return SqliteStatement(database_, "DELETE FROM troubles WHERE lease_id = ?", "forget trouble")
          .Bind(lease_id)
          .Run();
    }
    return SqliteStatement(database_,
                           "INSERT OR IGNORE INTO troubles (lease_id, since_ms) VALUES (?, ?)",
                           "note trouble")
        .Bind(lease_id)
        .Bind(seen_ms)
        .Run();
  });
}

absl::Status Ledger::NoteAbsent(absl::string_view lease_id, int64_t listed_ms) {
  return Write("absent", [&]() -> absl::Status {
    RETURN_IF_ERROR(
        SqliteStatement(database_,
                        "UPDATE leases SET absent_since_ms = CASE WHEN absent_since_ms = "
                        "0 OR absent_since_ms > ?1 THEN ?1 ELSE absent_since_ms END, "
                        "absent_listings = absent_listings + 1 WHERE lease_id = ?2 AND "
                        "state IN ('intent', 'rented', 'releasing')",
                        "note an absence")
            .Bind(listed_ms)
            .Bind(lease_id)
            .Run());
    return CheckStep(lease_id, "note the absence of");
  });
}

}  // namespace gpuctl
