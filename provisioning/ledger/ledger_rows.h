// The ledger's tables, and leases to and from their rows.
#ifndef GPUCTL_PROVISIONING_LEDGER_LEDGER_ROWS_H_
#define GPUCTL_PROVISIONING_LEDGER_LEDGER_ROWS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/sqlite/sqlite.h"
#include "provisioning/ledger/lease.h"
#include "provisioning/ledger/listing.h"

namespace gpuctl {

constexpr int kLedgerSchemaVersion = 1;
extern const char kLedgerSchema[];
// Came later; an older gpuctl does without.
extern const char kPriceRisesTable[];

// One row, without rates and uses.
absl::Status InsertLease(sqlite3* database, const Lease& lease);
// `where` is SQL with one "?" a value; with rates and uses, oldest first.
absl::StatusOr<std::vector<Lease>> SelectLeases(sqlite3* database, const std::string& where,
                                                const std::vector<std::string>& values);

absl::Status InsertListing(sqlite3* database, const MarketListing& listing);
absl::StatusOr<std::vector<MarketListing>> SelectListings(sqlite3* database);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_LEDGER_LEDGER_ROWS_H_
