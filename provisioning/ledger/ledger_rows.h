// The ledger's tables, and conversion of leases to and from rows.
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

constexpr char kLedgerFile[] = "ledger.db";
constexpr int kLedgerSchemaVersion = 1;
extern const char kLedgerSchema[];
// Tables added later. An older gpuctl works without them.
extern const char kLaterTables[];

// Marks `status` for IsLedgerFault.
absl::Status AsLedgerFault(absl::Status status);

// Inserts one row, without rates, uses, host key and key.
absl::Status InsertLease(sqlite3* database, const Lease& lease);
// Inserts the host key that a lease's machine gets.
absl::Status InsertHostKey(sqlite3* database, const Lease& lease);
// Notes the key that a lease was rented with; nothing when `key_print` is empty.
absl::Status InsertKeyPrint(sqlite3* database, absl::string_view lease_id,
                            absl::string_view key_print);
// Adds a price to those of a lease.
absl::Status InsertRate(sqlite3* database, absl::string_view lease_id, const RateChange& rate);
// Notes the prices of a lease's traffic and the counts of its bytes.
absl::Status InsertTrafficTerms(sqlite3* database, const Lease& lease);
// Returns leases with rates, uses and host keys, oldest first. `where` is SQL with one "?" for each
// value.
absl::StatusOr<std::vector<Lease>> SelectLeases(sqlite3* database, const std::string& where,
                                                const std::vector<std::string>& values);

absl::Status InsertListing(sqlite3* database, const MarketListing& listing);
absl::StatusOr<std::vector<MarketListing>> SelectListings(sqlite3* database);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_LEDGER_LEDGER_ROWS_H_
