#include "provisioning/ledger/ledger_rows.h"

#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace gpuctl {

const char kLedgerSchema[] = R"sql(
CREATE TABLE leases (
  lease_id TEXT PRIMARY KEY,
  label TEXT NOT NULL UNIQUE,
  provider TEXT NOT NULL,
  instance_id TEXT NOT NULL,
  state TEXT NOT NULL,
  gpu_name TEXT NOT NULL, gpu_count INTEGER NOT NULL, region TEXT NOT NULL, place TEXT NOT NULL,
  price_usd_per_hour REAL NOT NULL, spot INTEGER NOT NULL, quantum_s INTEGER NOT NULL,
  purpose TEXT NOT NULL,
  time_s INTEGER NOT NULL, idle_s INTEGER NOT NULL, salvage_s INTEGER NOT NULL,
  contact_s INTEGER NOT NULL, cost_usd REAL NOT NULL,
  intended_ms INTEGER NOT NULL, rented_ms INTEGER NOT NULL, created_ms INTEGER NOT NULL,
  claimed_ms INTEGER NOT NULL, releasing_ms INTEGER NOT NULL, seen_ms INTEGER NOT NULL,
  ended_after_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL, how_ended TEXT NOT NULL,
  absent_since_ms INTEGER NOT NULL, absent_listings INTEGER NOT NULL,
  node_id TEXT NOT NULL, host TEXT NOT NULL, port INTEGER NOT NULL, user TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX leases_state ON leases (state);
CREATE TABLE rates (lease_id TEXT NOT NULL, number INTEGER NOT NULL, after_ms INTEGER NOT NULL,
  noticed_ms INTEGER NOT NULL, usd_per_hour REAL NOT NULL, PRIMARY KEY (lease_id, number))
  WITHOUT ROWID;
CREATE TABLE uses (lease_id TEXT NOT NULL, run_id TEXT NOT NULL, run_name TEXT NOT NULL,
  from_ms INTEGER NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (lease_id, run_id)) WITHOUT ROWID;
CREATE INDEX uses_run ON uses (run_id);
CREATE TABLE places (place TEXT PRIMARY KEY, until_ms INTEGER NOT NULL, reason TEXT NOT NULL)
  WITHOUT ROWID;
CREATE TABLE listings (provider TEXT PRIMARY KEY, listed_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE listed (provider TEXT NOT NULL, instance_id TEXT NOT NULL, label TEXT NOT NULL,
  state INTEGER NOT NULL, status TEXT NOT NULL, price_usd_per_hour REAL NOT NULL,
  gpu_name TEXT NOT NULL, gpu_count INTEGER NOT NULL, region TEXT NOT NULL, place TEXT NOT NULL,
  spot INTEGER NOT NULL, created_ms INTEGER NOT NULL, holder INTEGER NOT NULL,
  lease_id TEXT NOT NULL, why TEXT NOT NULL, PRIMARY KEY (provider, instance_id)) WITHOUT ROWID;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
PRAGMA user_version = 1;
)sql";

const char kLaterTables[] = R"sql(
CREATE TABLE IF NOT EXISTS price_rises (provider TEXT NOT NULL, instance_id TEXT NOT NULL,
  rise_id TEXT NOT NULL, before_usd_per_hour REAL NOT NULL, after_usd_per_hour REAL NOT NULL,
  from_ms INTEGER NOT NULL, also TEXT NOT NULL, PRIMARY KEY (provider, instance_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS host_keys (lease_id TEXT PRIMARY KEY, public_key TEXT NOT NULL)
  WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lease_keys (lease_id TEXT PRIMARY KEY, key_print TEXT NOT NULL)
  WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS troubles (lease_id TEXT PRIMARY KEY, since_ms INTEGER NOT NULL)
  WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ends (lease_id TEXT PRIMARY KEY, ends_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS accounts (provider TEXT NOT NULL, key_print TEXT NOT NULL,
  account TEXT NOT NULL, PRIMARY KEY (provider, key_print)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS use_shares (lease_id TEXT NOT NULL, run_id TEXT NOT NULL,
  gpus INTEGER NOT NULL, until_ms INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (lease_id, run_id))
  WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS use_shares_open ON use_shares (run_id) WHERE until_ms = 0;
CREATE TABLE IF NOT EXISTS use_limits (lease_id TEXT NOT NULL, run_id TEXT NOT NULL,
  time_s INTEGER NOT NULL, idle_s INTEGER NOT NULL, salvage_s INTEGER NOT NULL,
  contact_s INTEGER NOT NULL, cost_usd REAL NOT NULL, PRIMARY KEY (lease_id, run_id))
  WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS traffic_terms (lease_id TEXT PRIMARY KEY,
  upload_usd_per_gb REAL NOT NULL, download_usd_per_gb REAL NOT NULL,
  sent_count INTEGER NOT NULL, received_count INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS traffic_charges (lease_id TEXT PRIMARY KEY, usd REAL NOT NULL)
  WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS traffic (lease_id TEXT NOT NULL, number INTEGER NOT NULL,
  noted_ms INTEGER NOT NULL, run_id TEXT NOT NULL, sent_bytes INTEGER NOT NULL,
  received_bytes INTEGER NOT NULL, usd REAL NOT NULL, PRIMARY KEY (lease_id, number))
  WITHOUT ROWID;
)sql";

namespace {

// The columns in the order in which InsertLease binds and ReadLease reads them.
constexpr char kColumns[] =
    "lease_id, label, provider, instance_id, state, gpu_name, gpu_count, region, place, "
    "price_usd_per_hour, spot, quantum_s, purpose, time_s, idle_s, salvage_s, contact_s, cost_usd, "
    "intended_ms, rented_ms, created_ms, claimed_ms, releasing_ms, seen_ms, ended_after_ms, "
    "ended_ms, how_ended, absent_since_ms, absent_listings, node_id, host, port, user";
constexpr int kColumnCount = 33;

std::string QuestionMarks(int count) {
  std::string marks = "?";
  for (int i = 1; i < count; ++i) marks += ", ?";
  return marks;
}

absl::StatusOr<Lease> ReadLease(SqliteStatement& row) {
  Lease lease;
  int at = 0;
  lease.lease_id = row.Text(at++);
  lease.label = row.Text(at++);
  lease.provider = row.Text(at++);
  lease.instance_id = row.Text(at++);
  ASSIGN_OR_RETURN(lease.state, ParseLeaseState(row.Text(at++)));
  lease.gpu_name = row.Text(at++);
  lease.gpu_count = static_cast<int>(row.Int(at++));
  lease.region = row.Text(at++);
  lease.place = row.Text(at++);
  lease.price_usd_per_hour = row.Double(at++);
  lease.spot = row.Int(at++) != 0;
  lease.quantum_s = row.Int(at++);
  lease.purpose = row.Text(at++);
  lease.limits.time_s = row.Int(at++);
  lease.limits.idle_s = row.Int(at++);
  lease.limits.salvage_s = row.Int(at++);
  lease.limits.contact_s = row.Int(at++);
  lease.limits.cost_usd = row.Double(at++);
  for (int64_t* time :
       {&lease.intended_ms, &lease.rented_ms, &lease.created_ms, &lease.claimed_ms,
        &lease.releasing_ms, &lease.seen_ms, &lease.ended_after_ms, &lease.ended_ms}) {
    *time = row.Int(at++);
  }
  lease.how_ended = row.Text(at++);
  if (lease.state == LeaseState::kReleased) lease.ending = EndingOf(lease.how_ended);
  lease.absent_since_ms = row.Int(at++);
  lease.absent_listings = static_cast<int>(row.Int(at++));
  lease.node_id = row.Text(at++);
  lease.address.host = row.Text(at++);
  lease.address.port = static_cast<int>(row.Int(at++));
  lease.address.user = row.Text(at++);
  return lease;
}

// Calls `take` with each of these leases' rows in another table. `columns` are those after the
// lease's id, with FROM and the table.
absl::Status ReadTable(sqlite3* database, const char* columns, const std::string& filter,
                       const std::vector<std::string>& values,
                       const std::map<std::string, Lease*>& leases,
                       const std::function<void(Lease& lease, SqliteStatement& row)>& take) {
  SqliteStatement row(database, absl::StrCat("SELECT lease_id, ", columns, filter).c_str(),
                      absl::StrCat("read ", columns));
  for (const std::string& value : values) row.Bind(value);
  for (;;) {
    ASSIGN_OR_RETURN(const bool found, row.Step());
    if (!found) return absl::OkStatus();
    const auto lease = leases.find(row.Text(0));
    if (lease != leases.end()) take(*lease->second, row);  // else written meanwhile
  }
}

absl::Status ReadMore(sqlite3* database, const std::string& where,
                      const std::vector<std::string>& values, std::vector<Lease>& leases) {
  std::map<std::string, Lease*> by_id;
  for (Lease& lease : leases) by_id[lease.lease_id] = &lease;
  const std::string filter =
      absl::StrCat(" WHERE lease_id IN (SELECT lease_id FROM leases WHERE ", where, ")");
  const std::string in_order = absl::StrCat(filter, " ORDER BY lease_id, number");
  const auto read = [&](const char* columns, const std::string& rows, auto take) {
    return ReadTable(database, columns, rows, values, by_id, take);
  };
  using Row = SqliteStatement;
  RETURN_IF_ERROR(
      read("upload_usd_per_gb, download_usd_per_gb, sent_count, received_count FROM "
           "traffic_terms",
           filter, [](Lease& lease, Row& row) {
             lease.upload_usd_per_gb = row.Double(1);
             lease.download_usd_per_gb = row.Double(2);
             lease.sent_count = row.Int(3);
             lease.received_count = row.Int(4);
           }));
  RETURN_IF_ERROR(read(
      "noted_ms, run_id, sent_bytes, received_bytes, usd FROM traffic", in_order,
      [](Lease& lease, Row& row) {
        lease.traffic.push_back({row.Int(1), row.Text(2), row.Int(3), row.Int(4), row.Double(5)});
      }));
  RETURN_IF_ERROR(
      read("after_ms, noticed_ms, usd_per_hour FROM rates", in_order, [](Lease& lease, Row& row) {
        lease.rates.push_back({row.Int(1), row.Int(2), row.Double(3)});
      }));
  RETURN_IF_ERROR(read(
      "run_id, run_name, from_ms, gpus, until_ms, time_s, idle_s, salvage_s, contact_s, cost_usd "
      "FROM uses LEFT JOIN use_shares USING (lease_id, run_id) LEFT JOIN use_limits USING "
      "(lease_id, run_id)",
      in_order, [](Lease& lease, Row& row) {
        LeaseUse& use = lease.uses.emplace_back();
        use.run_id = row.Text(1);
        use.run_name = row.Text(2);
        use.from_ms = row.Int(3);
        if (!row.IsNull(4)) {
          use.gpus = static_cast<int>(row.Int(4));
          use.until_ms = row.Int(5);
        }
        if (row.IsNull(6)) return;
        use.limits = LeaseLimits{row.Int(6), row.Int(7), row.Int(8), row.Int(9), row.Double(10)};
      }));
  RETURN_IF_ERROR(read("usd FROM traffic_charges", filter,
                       [](Lease& lease, Row& row) { lease.traffic_charged_usd = row.Double(1); }));
  RETURN_IF_ERROR(read("since_ms FROM troubles", filter,
                       [](Lease& lease, Row& row) { lease.trouble_ms = row.Int(1); }));
  RETURN_IF_ERROR(read("ends_ms FROM ends", filter,
                       [](Lease& lease, Row& row) { lease.ends_ms = row.Int(1); }));
  RETURN_IF_ERROR(read("key_print FROM lease_keys", filter,
                       [](Lease& lease, Row& row) { lease.key_print = row.Text(1); }));
  return read("public_key FROM host_keys", filter,
              [](Lease& lease, Row& row) { lease.host_key = row.Text(1); });
}

}  // namespace

absl::Status InsertLease(sqlite3* database, const Lease& lease) {
  SqliteStatement row(
      database,
      absl::StrCat("INSERT INTO leases (", kColumns, ") VALUES (", QuestionMarks(kColumnCount), ")")
          .c_str(),
      absl::StrCat("enter lease ", lease.lease_id));
  row.Bind(lease.lease_id).Bind(lease.label).Bind(lease.provider).Bind(lease.instance_id);
  row.Bind(LeaseStateName(lease.state)).Bind(lease.gpu_name).Bind(int64_t{lease.gpu_count});
  row.Bind(lease.region).Bind(lease.place).BindDouble(lease.price_usd_per_hour);
  row.Bind(int64_t{lease.spot}).Bind(lease.quantum_s).Bind(lease.purpose);
  row.Bind(lease.limits.time_s).Bind(lease.limits.idle_s).Bind(lease.limits.salvage_s);
  row.Bind(lease.limits.contact_s).BindDouble(lease.limits.cost_usd);
  row.Bind(lease.intended_ms).Bind(lease.rented_ms).Bind(lease.created_ms);
  row.Bind(lease.claimed_ms).Bind(lease.releasing_ms).Bind(lease.seen_ms);
  row.Bind(lease.ended_after_ms).Bind(lease.ended_ms).Bind(lease.how_ended);
  row.Bind(lease.absent_since_ms).Bind(int64_t{lease.absent_listings}).Bind(lease.node_id);
  row.Bind(lease.address.host).Bind(int64_t{lease.address.port}).Bind(lease.address.user);
  return row.Run();
}

absl::StatusOr<std::vector<Lease>> SelectLeases(sqlite3* database, const std::string& where,
                                                const std::vector<std::string>& values) {
  // The savepoint gives one consistent view of all tables.
  RETURN_IF_ERROR(SqliteExecute(database, "SAVEPOINT leases", "read the ledger"));
  std::vector<Lease> leases;
  const auto read = [&]() -> absl::Status {
    SqliteStatement row(database,
                        absl::StrCat("SELECT ", kColumns, " FROM leases WHERE ", where,
                                     " ORDER BY intended_ms, lease_id")
                            .c_str(),
                        "read the leases");
    for (const std::string& value : values) row.Bind(value);
    for (;;) {
      ASSIGN_OR_RETURN(const bool found, row.Step());
      if (!found) break;
      ASSIGN_OR_RETURN(leases.emplace_back(), ReadLease(row));
    }
    return leases.empty() ? absl::OkStatus() : ReadMore(database, where, values, leases);
  };
  const absl::Status status = read();
  RETURN_IF_ERROR(SqliteExecute(database, "RELEASE leases", "read the ledger"));
  RETURN_IF_ERROR(status);
  return leases;
}

absl::Status InsertHostKey(sqlite3* database, const Lease& lease) {
  return SqliteStatement(database, "INSERT INTO host_keys (lease_id, public_key) VALUES (?, ?)",
                         "note a host key")
      .Bind(lease.lease_id)
      .Bind(lease.host_key)
      .Run();
}

absl::Status InsertRate(sqlite3* database, absl::string_view lease_id, const RateChange& rate) {
  return SqliteStatement(database,
                         "INSERT INTO rates (lease_id, number, after_ms, noticed_ms, usd_per_hour) "
                         "SELECT ?1, (SELECT COUNT(*) FROM rates WHERE lease_id = ?1), ?2, ?3, ?4",
                         "note a price")
      .Bind(lease_id)
      .Bind(rate.after_ms)
      .Bind(rate.noticed_ms)
      .BindDouble(rate.usd_per_hour)
      .Run();
}

absl::Status InsertKeyPrint(sqlite3* database, absl::string_view lease_id,
                            absl::string_view key_print) {
  if (key_print.empty()) return absl::OkStatus();
  return SqliteStatement(database,
                         "INSERT OR REPLACE INTO lease_keys (lease_id, key_print) VALUES (?, ?)",
                         "note an account")
      .Bind(lease_id)
      .Bind(key_print)
      .Run();
}

absl::Status InsertListing(sqlite3* database, const MarketListing& listing) {
  const std::string doing = absl::StrCat("note the listing of ", listing.provider);
  RETURN_IF_ERROR(
      SqliteStatement(database,
                      "INSERT OR REPLACE INTO listings (provider, listed_ms) VALUES (?, ?)", doing)
          .Bind(listing.provider)
          .Bind(listing.listed_ms)
          .Run());
  RETURN_IF_ERROR(SqliteStatement(database, "DELETE FROM listed WHERE provider = ?", doing)
                      .Bind(listing.provider)
                      .Run());
  for (const ListedInstance& listed : listing.instances) {
    const Instance& instance = listed.instance;
    SqliteStatement row(database,
                        "INSERT OR REPLACE INTO listed (provider, instance_id, label, state, "
                        "status, price_usd_per_hour, gpu_name, gpu_count, region, place, spot, "
                        "created_ms, holder, lease_id, why) VALUES "
                        "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                        doing);
    row.Bind(listing.provider).Bind(instance.id).Bind(instance.label);
    row.Bind(static_cast<int64_t>(instance.state)).Bind(instance.status);
    row.BindDouble(instance.price_usd_per_hour).Bind(instance.gpu_name);
    row.Bind(int64_t{instance.gpu_count}).Bind(instance.region).Bind(instance.place);
    row.Bind(int64_t{instance.spot}).Bind(instance.created_ms);
    row.Bind(static_cast<int64_t>(listed.holder)).Bind(listed.lease_id).Bind(listed.why);
    RETURN_IF_ERROR(row.Run());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<MarketListing>> SelectListings(sqlite3* database) {
  std::vector<MarketListing> listings;
  SqliteStatement row(database,
                      "SELECT l.provider, l.listed_ms, i.instance_id, i.label, i.state, i.status, "
                      "i.price_usd_per_hour, i.gpu_name, i.gpu_count, i.region, i.place, i.spot, "
                      "i.created_ms, i.holder, i.lease_id, i.why FROM listings l "
                      "LEFT JOIN listed i ON i.provider = l.provider "
                      "ORDER BY l.provider, i.instance_id",
                      "read the last listings");
  for (;;) {
    ASSIGN_OR_RETURN(const bool found, row.Step());
    if (!found) return listings;
    if (listings.empty() || listings.back().provider != row.Text(0)) {
      listings.push_back({row.Text(0), row.Int(1), {}});
    }
    if (row.IsNull(2)) continue;
    ListedInstance& listed = listings.back().instances.emplace_back();
    listed.instance.id = row.Text(2);
    listed.instance.label = row.Text(3);
    const int64_t state = row.Int(4);
    const int64_t holder = row.Int(13);
    if (state < 0 || state > static_cast<int64_t>(Instance::State::kSilent) || holder < 0 ||
        holder > static_cast<int64_t>(Holder::kLost)) {
      return absl::DataLossError(
          absl::StrCat("read the last listings: ", listed.instance.id, " has no state known here"));
    }
    listed.instance.state = static_cast<Instance::State>(state);
    listed.instance.status = row.Text(5);
    listed.instance.price_usd_per_hour = row.Double(6);
    listed.instance.gpu_name = row.Text(7);
    listed.instance.gpu_count = static_cast<int>(row.Int(8));
    listed.instance.region = row.Text(9);
    listed.instance.place = row.Text(10);
    listed.instance.spot = row.Int(11) != 0;
    listed.instance.created_ms = row.Int(12);
    listed.holder = static_cast<Holder>(holder);
    listed.lease_id = row.Text(14);
    listed.why = row.Text(15);
  }
}

}  // namespace gpuctl
