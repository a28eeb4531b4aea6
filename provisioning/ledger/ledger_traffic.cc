// The traffic of leases in the ledger.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/sqlite/sqlite.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/ledger/ledger_rows.h"

namespace gpuctl {
namespace {

constexpr double kBytesPerPricedGb = 1e9;
// More bytes than a machine moves in years; a node that reports more lies.
constexpr int64_t kMostBytes = int64_t{1} << 60;
// Reports of one run within this time share a row.
constexpr int64_t kTrafficRowMs = 3'600'000;

// Returns the bytes since an earlier count.
int64_t NewBytes(int64_t counted, int64_t before) {
  counted = std::clamp<int64_t>(counted, 0, kMostBytes);
  return counted >= before ? counted - before : counted;
}

double TrafficPrice(int64_t bytes, double usd_per_gb) {
  return static_cast<double>(bytes) / kBytesPerPricedGb * usd_per_gb;
}

}  // namespace

absl::Status InsertTrafficTerms(sqlite3* database, const Lease& lease) {
  return SqliteStatement(database,
                         "INSERT OR REPLACE INTO traffic_terms (lease_id, upload_usd_per_gb, "
                         "download_usd_per_gb, sent_count, received_count) VALUES (?, ?, ?, ?, ?)",
                         "note the prices of traffic")
      .Bind(lease.lease_id)
      .BindDouble(lease.upload_usd_per_gb)
      .BindDouble(lease.download_usd_per_gb)
      .Bind(lease.sent_count)
      .Bind(lease.received_count)
      .Run();
}

absl::Status Ledger::SetTrafficPrices(absl::string_view lease_id, double upload_usd_per_gb,
                                      double download_usd_per_gb) {
  const auto is_price = [](double usd) { return std::isfinite(usd) && usd >= 0; };
  if (!is_price(upload_usd_per_gb) || !is_price(download_usd_per_gb)) {
    return absl::InvalidArgumentError("note the prices of traffic: one is no price");
  }
  ASSIGN_OR_RETURN(const Lease known, Get(lease_id));
  if (known.upload_usd_per_gb == upload_usd_per_gb &&
      known.download_usd_per_gb == download_usd_per_gb) {
    return absl::OkStatus();
  }
  return Write("traffic_prices", [&]() -> absl::Status {
    ASSIGN_OR_RETURN(Lease lease, Get(lease_id));
    lease.upload_usd_per_gb = upload_usd_per_gb;
    lease.download_usd_per_gb = download_usd_per_gb;
    return InsertTrafficTerms(database_, lease);
  });
}

absl::Status Ledger::NoteTraffic(absl::string_view lease_id, int64_t sent_bytes,
                                 int64_t received_bytes) {
  return Write("traffic", [&]() -> absl::Status {
    ASSIGN_OR_RETURN(Lease lease, Get(lease_id));
    const int64_t sent = NewBytes(sent_bytes, lease.sent_count);
    const int64_t received = NewBytes(received_bytes, lease.received_count);
    if (sent == 0 && received == 0) return absl::OkStatus();
    lease.sent_count = std::clamp<int64_t>(sent_bytes, 0, kMostBytes);
    lease.received_count = std::clamp<int64_t>(received_bytes, 0, kMostBytes);
    RETURN_IF_ERROR(InsertTrafficTerms(database_, lease));
    LeaseTraffic row;
    row.run_id = lease.uses.empty() ? "" : lease.uses.back().run_id;
    row.noted_ms = NowMs();
    size_t number = lease.traffic.size();
    if (number > 0) {
      const LeaseTraffic& last = lease.traffic.back();
      const int64_t passed_ms = row.noted_ms - last.noted_ms;
      if (last.run_id == row.run_id && passed_ms >= 0 && passed_ms < kTrafficRowMs) {
        row = last;
        --number;
      }
    }
    row.sent_bytes += sent;
    row.received_bytes += received;
    row.usd += TrafficPrice(sent, lease.upload_usd_per_gb) +
               TrafficPrice(received, lease.download_usd_per_gb);
    return SqliteStatement(database_,
                           "INSERT OR REPLACE INTO traffic (lease_id, number, noted_ms, run_id, "
                           "sent_bytes, received_bytes, usd) VALUES (?, ?, ?, ?, ?, ?, ?)",
                           "note traffic")
        .Bind(lease_id)
        .Bind(static_cast<int64_t>(number))
        .Bind(row.noted_ms)
        .Bind(row.run_id)
        .Bind(row.sent_bytes)
        .Bind(row.received_bytes)
        .BindDouble(row.usd)
        .Run();
  });
}

absl::Status Ledger::NoteTrafficCharge(absl::string_view lease_id, double usd) {
  if (!std::isfinite(usd)) return absl::InvalidArgumentError("note a charge: it is no sum");
  ASSIGN_OR_RETURN(const Lease known, Get(lease_id));
  if (usd <= known.traffic_charged_usd) return absl::OkStatus();
  return Write("traffic_charge", [&] {
    return SqliteStatement(database_,
                           "INSERT OR REPLACE INTO traffic_charges (lease_id, usd) VALUES (?, ?)",
                           "note what traffic has cost")
        .Bind(lease_id)
        .BindDouble(usd)
        .Run();
  });
}

}  // namespace gpuctl
