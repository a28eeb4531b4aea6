#include "provisioning/ledger/ledger.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/sqlite/sqlite.h"
#include "provisioning/ledger/ledger_rows.h"
#include "provisioning/market/label.h"

namespace gpuctl {
namespace {

// The payload of the statuses of changes that failed.
constexpr char kLedgerFaultUrl[] = "gpuctl/ledger-fault";

constexpr int kLeaseBytes = 6;

absl::Status InsertUse(sqlite3* database, absl::string_view lease_id, const LeaseUse& use) {
  RETURN_IF_ERROR(
      SqliteStatement(database,
                      "INSERT OR IGNORE INTO use_shares (lease_id, run_id, gpus) VALUES (?, ?, ?)",
                      "note what a run uses of a lease")
          .Bind(lease_id)
          .Bind(use.run_id)
          .Bind(int64_t{use.gpus})
          .Run());
  if (use.limits.has_value()) {
    RETURN_IF_ERROR(SqliteStatement(database,
                                    "INSERT OR REPLACE INTO use_limits (lease_id, run_id, time_s, "
                                    "idle_s, salvage_s, contact_s, cost_usd) "
                                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                                    "note under which limits a run uses a lease")
                        .Bind(lease_id)
                        .Bind(use.run_id)
                        .Bind(use.limits->time_s)
                        .Bind(use.limits->idle_s)
                        .Bind(use.limits->salvage_s)
                        .Bind(use.limits->contact_s)
                        .BindDouble(use.limits->cost_usd)
                        .Run());
  }
  return SqliteStatement(database,
                         "INSERT OR IGNORE INTO uses (lease_id, run_id, run_name, from_ms, number) "
                         "SELECT ?1, ?2, ?3, ?4, (SELECT COUNT(*) FROM uses WHERE lease_id = ?1)",
                         "note whose run uses a lease")
      .Bind(lease_id)
      .Bind(use.run_id)
      .Bind(use.run_name)
      .Bind(use.from_ms)
      .Run();
}

absl::Status SetLimits(sqlite3* database, absl::string_view lease_id, const LeaseLimits& limits) {
  return SqliteStatement(database,
                         "UPDATE leases SET time_s = ?, idle_s = ?, salvage_s = ?, "
                         "contact_s = ?, cost_usd = ? WHERE lease_id = ?",
                         "note limits")
      .Bind(limits.time_s)
      .Bind(limits.idle_s)
      .Bind(limits.salvage_s)
      .Bind(limits.contact_s)
      .BindDouble(limits.cost_usd)
      .Bind(lease_id)
      .Run();
}

Lease LeaseOf(const LeaseTerms& terms) {
  Lease lease;
  lease.provider = terms.offer.provider;
  lease.gpu_name = terms.offer.gpu_name;
  lease.gpu_count = terms.offer.gpu_count;
  lease.region = terms.offer.region;
  lease.place = terms.offer.place;
  lease.price_usd_per_hour = terms.offer.price_usd_per_hour;
  lease.spot = terms.offer.spot;
  lease.upload_usd_per_gb = std::max(0.0, terms.offer.upload_usd_per_gb.value_or(0));
  lease.download_usd_per_gb = std::max(0.0, terms.offer.download_usd_per_gb.value_or(0));
  lease.quantum_s = terms.quantum_s;
  lease.limits = terms.limits;
  lease.purpose = terms.purpose;
  lease.host_key = terms.host_key;
  lease.key_print = terms.key_print;
  return lease;
}

// Empty outside tests.
Ledger::WriteHook& HookOfEveryLedger() {
  static auto& hook = *new Ledger::WriteHook();
  return hook;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Ledger>> Ledger::Open(const std::string& state_dir, Clock& clock,
                                                     LedgerHome home) {
  const std::string path = JoinPath(state_dir, kLedgerFile);
  const std::string doing = absl::StrCat("open the ledger ", path);
  ASSIGN_OR_RETURN(sqlite3* const database, OpenSqlite(path, doing));
  std::unique_ptr<Ledger> ledger(new Ledger(database, state_dir, clock, std::move(home)));
  RETURN_IF_ERROR(Annotate(ledger->Migrate(), doing));
  ledger->SetWriteHook(HookOfEveryLedger());
  return ledger;
}

absl::StatusOr<std::unique_ptr<Ledger>> Ledger::OpenIfThere(const std::string& state_dir,
                                                            Clock& clock, LedgerHome home) {
  if (!PathExists(JoinPath(state_dir, kLedgerFile))) return std::unique_ptr<Ledger>();
  return Open(state_dir, clock, std::move(home));
}

absl::StatusOr<std::unique_ptr<Ledger>> Ledger::OpenCopy(const std::string& state_dir, Clock& clock,
                                                         LedgerHome home) {
  const std::string path = JoinPath(state_dir, kLedgerFile);
  const std::string doing = absl::StrCat("copy the ledger ", path);
  ASSIGN_OR_RETURN(sqlite3* const database, CopySqlite(path, doing));
  home.owner_dir.clear();  // nothing can be written there
  std::unique_ptr<Ledger> ledger(new Ledger(database, state_dir, clock, std::move(home)));
  RETURN_IF_ERROR(Annotate(ledger->Migrate(), doing));
  return ledger;
}

absl::Status Ledger::Check() {
  SqliteStatement check(database_, "PRAGMA quick_check(1)", "check the ledger");
  ASSIGN_OR_RETURN(const bool row, check.Step());
  const std::string found = row ? check.Text(0) : "no answer";
  return found == "ok" ? absl::OkStatus()
                       : absl::DataLossError(absl::StrCat("the ledger: ", found));
}

absl::StatusOr<std::string> Ledger::SetAside(const std::string& state_dir, Clock& clock) {
  const std::string locks = JoinPath(state_dir, "locks");
  RETURN_IF_ERROR(MakeDirectories(locks));
  ASSIGN_OR_RETURN(const UniqueFd lock, WaitForLock(JoinPath(locks, "set-aside")));
  absl::Status status;
  {
    const absl::StatusOr<std::unique_ptr<Ledger>> ledger = OpenIfThere(state_dir, clock);
    status = ledger.ok() && *ledger != nullptr ? (*ledger)->Check() : ledger.status();
  }
  if (!absl::IsDataLoss(status)) return "";
  const std::string path = JoinPath(state_dir, kLedgerFile);
  const std::string aside = absl::StrCat(
      path, ".damaged-", absl::FormatTime("%Y%m%d-%H%M%S", clock.Now(), absl::UTCTimeZone()), "-",
      RandomHex(2));
  // The log belongs to the damaged file. It goes first: a new file must not find it.
  for (const char* ending : {"-wal", "-shm", ""}) {
    const std::string from = absl::StrCat(path, ending);
    if (rename(from.c_str(), absl::StrCat(aside, ending).c_str()) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("set ", from, " aside"));
    }
  }
  return aside;
}

void Ledger::HookEveryLedger(WriteHook hook) { HookOfEveryLedger() = std::move(hook); }

Ledger::~Ledger() { sqlite3_close(database_); }

absl::Status Ledger::Migrate() {
  ASSIGN_OR_RETURN(const int64_t found, EnsureSchema(database_, kLedgerSchema));
  if (found == kLedgerSchemaVersion) {
    return SqliteExecute(database_, kLaterTables, "create the tables of price rises and host keys");
  }
  return absl::FailedPreconditionError(absl::StrCat("its schema is version ", found,
                                                    ", this gpuctl knows ", kLedgerSchemaVersion,
                                                    ": use the newer gpuctl that wrote it"));
}

absl::Status Ledger::Write(absl::string_view change, const std::function<absl::Status()>& body) {
  const auto write = [&]() -> absl::Status {
    if (write_hook_) RETURN_IF_ERROR(write_hook_(change, false));
    RETURN_IF_ERROR(SqliteExecute(database_, "BEGIN IMMEDIATE", change));
    absl::Status status = body();
    if (status.ok()) status = SqliteExecute(database_, "COMMIT", change);
    if (!status.ok()) {
      // If the commit itself rolled back, there is nothing left to roll back.
      SqliteExecute(database_, "ROLLBACK", change).IgnoreError();
      return Annotate(status, "write the ledger");
    }
    return write_hook_ ? write_hook_(change, true) : absl::OkStatus();
  };
  const absl::Status status = write();
  return status.ok() ? status : AsLedgerFault(status);
}

absl::Status AsLedgerFault(absl::Status status) {
  status.SetPayload(kLedgerFaultUrl, absl::Cord("1"));
  return status;
}

bool IsLedgerFault(const absl::Status& status) {
  return status.GetPayload(kLedgerFaultUrl).has_value();
}

absl::Status Ledger::CheckStep(absl::string_view lease_id, absl::string_view doing) {
  if (sqlite3_changes(database_) == 1) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Lease lease, Get(lease_id));
  return absl::FailedPreconditionError(
      absl::StrCat(doing, " lease ", lease_id, ": it is ", LeaseStateName(lease.state)));
}

std::string Ledger::NewLeaseId() { return RandomHex(kLeaseBytes); }

absl::StatusOr<Lease> Ledger::Intend(absl::string_view lease_id, const LeaseTerms& terms) {
  Lease lease = LeaseOf(terms);
  lease.lease_id = std::string(lease_id);
  ASSIGN_OR_RETURN(const std::string owner, OwnerId());
  lease.label = FormatLabel({owner, lease.lease_id});
  lease.intended_ms = NowMs();
  lease.rates = {{lease.intended_ms, lease.intended_ms, lease.price_usd_per_hour}};
  if (!terms.run_id.empty()) {
    lease.uses = {
        {terms.run_id, terms.run_name, lease.intended_ms, terms.run_gpus, 0, terms.limits}};
  }
  const absl::Status written = Write("intend", [&]() -> absl::Status {
    RETURN_IF_ERROR(InsertLease(database_, lease));
    if (!lease.uses.empty()) RETURN_IF_ERROR(InsertUse(database_, lease_id, lease.uses.front()));
    if (!lease.host_key.empty()) RETURN_IF_ERROR(InsertHostKey(database_, lease));
    RETURN_IF_ERROR(InsertKeyPrint(database_, lease_id, lease.key_print));
    if (lease.pays_for_traffic()) RETURN_IF_ERROR(InsertTrafficTerms(database_, lease));
    return InsertRate(database_, lease_id, lease.rates.front());
  });
  RETURN_IF_ERROR(written);
  return lease;
}

absl::Status Ledger::Rented(absl::string_view lease_id, const Instance& instance) {
  const int64_t now_ms = NowMs();
  return Write("rented", [&]() -> absl::Status {
    RETURN_IF_ERROR(SqliteStatement(database_,
                                    "UPDATE leases SET instance_id = ?1, created_ms = ?2, "
                                    "rented_ms = CASE state WHEN 'rented' THEN rented_ms ELSE ?3 "
                                    "END, seen_ms = ?3, absent_since_ms = 0, absent_listings = 0, "
                                    "state = 'rented' WHERE lease_id = ?4 AND "
                                    "(state IN ('intent', 'not_created') OR "
                                    "(state = 'rented' AND instance_id = ?1))",
                                    "enter what was rented")
                        .Bind(instance.id)
                        .Bind(instance.created_ms)
                        .Bind(now_ms)
                        .Bind(lease_id)
                        .Run());
    RETURN_IF_ERROR(CheckStep(lease_id, "enter what was rented as"));
    if (instance.price_usd_per_hour <= 0) return absl::OkStatus();
    return SqliteStatement(database_,
                           "UPDATE rates SET usd_per_hour = ? WHERE lease_id = ? AND number = 0",
                           "enter the price")
        .BindDouble(instance.price_usd_per_hour)
        .Bind(lease_id)
        .Run();
  });
}

absl::Status Ledger::NotCreated(absl::string_view lease_id, absl::string_view why) {
  const int64_t now_ms = NowMs();
  return Write("not_created", [&]() -> absl::Status {
    RETURN_IF_ERROR(SqliteStatement(database_,
                                    "UPDATE leases SET state = 'not_created', how_ended = ?, "
                                    "ended_ms = ? WHERE lease_id = ? AND "
                                    "state IN ('intent', 'not_created')",
                                    "close an intent")
                        .Bind(why)
                        .Bind(now_ms)
                        .Bind(lease_id)
                        .Run());
    return CheckStep(lease_id, "close the intent of");
  });
}

absl::Status Ledger::Claimed(absl::string_view lease_id, absl::string_view node_id) {
  const int64_t now_ms = NowMs();
  return Write("claimed", [&]() -> absl::Status {
    RETURN_IF_ERROR(SqliteStatement(database_,
                                    "UPDATE leases SET node_id = ?1, claimed_ms = CASE claimed_ms "
                                    "WHEN 0 THEN ?2 ELSE claimed_ms END "
                                    "WHERE lease_id = ?3 AND state = 'rented'",
                                    "note the claim")
                        .Bind(node_id)
                        .Bind(now_ms)
                        .Bind(lease_id)
                        .Run());
    return CheckStep(lease_id, "claim");
  });
}

absl::Status Ledger::Releasing(absl::string_view lease_id) {
  const int64_t now_ms = NowMs();
  return Write("releasing", [&]() -> absl::Status {
    RETURN_IF_ERROR(SqliteStatement(database_,
                                    "UPDATE leases SET state = 'releasing', releasing_ms = CASE "
                                    "releasing_ms WHEN 0 THEN ?1 ELSE releasing_ms END "
                                    "WHERE lease_id = ?2 AND instance_id <> '' AND "
                                    "state IN ('rented', 'releasing', 'released')",
                                    "note a release")
                        .Bind(now_ms)
                        .Bind(lease_id)
                        .Run());
    return CheckStep(lease_id, "release");
  });
}

absl::Status Ledger::Released(absl::string_view lease_id, int64_t ended_after_ms,
                              absl::string_view how) {
  const int64_t now_ms = NowMs();
  return Write("released", [&]() -> absl::Status {
    RETURN_IF_ERROR(SqliteStatement(database_,
                                    "UPDATE leases SET state = 'released', ended_after_ms = ?1, "
                                    "ended_ms = ?2, how_ended = ?3 WHERE lease_id = ?4 AND "
                                    "state IN ('rented', 'releasing')",
                                    "note the end of a lease")
                        .Bind(std::min(ended_after_ms, now_ms))
                        .Bind(now_ms)
                        .Bind(how)
                        .Bind(lease_id)
                        .Run());
    if (sqlite3_changes(database_) == 1) return absl::OkStatus();
    ASSIGN_OR_RETURN(const Lease lease, Get(lease_id));
    if (lease.state == LeaseState::kReleased) return absl::OkStatus();
    return CheckStep(lease_id, "end");
  });
}

absl::Status Ledger::Reopen(absl::string_view lease_id) {
  return Write("reopen", [&]() -> absl::Status {
    RETURN_IF_ERROR(SqliteStatement(database_,
                                    "UPDATE leases SET state = 'rented', ended_after_ms = 0, "
                                    "ended_ms = 0, how_ended = '', absent_since_ms = 0, "
                                    "absent_listings = 0 WHERE lease_id = ? AND "
                                    "releasing_ms = 0 AND state IN ('released', 'rented')",
                                    "take back the end of a lease")
                        .Bind(lease_id)
                        .Run());
    return CheckStep(lease_id, "take back the end of");
  });
}

absl::StatusOr<Lease> Ledger::Adopt(absl::string_view provider, const Instance& instance,
                                    int64_t quantum_s, absl::string_view key_print, bool claimed,
                                    int64_t begun_ms) {
  const std::optional<LeaseLabel> label = ParseLabel(instance.label);
  if (!label.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("take over ", instance.id, ": no gpuctl named it: ", instance.label));
  }
  Lease lease;
  lease.lease_id = label->lease;
  lease.label = instance.label;
  lease.provider = std::string(provider);
  lease.instance_id = instance.id;
  lease.state = claimed ? LeaseState::kRented : LeaseState::kReleasing;
  lease.gpu_name = instance.gpu_name;
  lease.gpu_count = instance.gpu_count;
  lease.region = instance.region;
  lease.place = instance.place;
  lease.price_usd_per_hour = instance.price_usd_per_hour;
  lease.spot = instance.spot;
  lease.quantum_s = quantum_s;
  lease.purpose = "found at the provider, not in the ledger";
  const int64_t now_ms = NowMs();
  lease.created_ms = instance.created_ms;
  if (instance.created_ms > 0) begun_ms = instance.created_ms;
  lease.intended_ms = begun_ms > 0 ? std::min(begun_ms, now_ms) : now_ms;
  lease.rented_ms = now_ms;
  (claimed ? lease.claimed_ms : lease.releasing_ms) = now_ms;
  lease.seen_ms = now_ms;
  lease.key_print = std::string(key_print);
  lease.rates = {{lease.intended_ms, lease.intended_ms, lease.price_usd_per_hour}};
  const absl::Status written = Write("adopt", [&]() -> absl::Status {
    RETURN_IF_ERROR(InsertLease(database_, lease));
    RETURN_IF_ERROR(InsertKeyPrint(database_, lease.lease_id, lease.key_print));
    return InsertRate(database_, lease.lease_id, lease.rates.front());
  });
  RETURN_IF_ERROR(written);
  return lease;
}

absl::Status Ledger::NotUsedBy(absl::string_view lease_id, absl::string_view run_id,
                               const LeaseLimits& before) {
  return Write("not_used", [&]() -> absl::Status {
    for (const absl::string_view table : {"uses", "use_shares", "use_limits"}) {
      const std::string sql =
          absl::StrCat("DELETE FROM ", table, " WHERE lease_id = ? AND run_id = ?");
      RETURN_IF_ERROR(SqliteStatement(database_, sql.c_str(), "forget what a run uses of a lease")
                          .Bind(lease_id)
                          .Bind(run_id)
                          .Run());
    }
    return SetLimits(database_, lease_id, before);
  });
}

absl::Status Ledger::UsedBy(absl::string_view lease_id, absl::string_view run_id,
                            absl::string_view run_name, const LeaseLimits& limits, int gpus,
                            bool beside) {
  RETURN_IF_ERROR(Get(lease_id).status());
  const int64_t now_ms = NowMs();
  return Write("used", [&]() -> absl::Status {
    RETURN_IF_ERROR(SetLimits(database_, lease_id, limits));
    if (!beside) {
      RETURN_IF_ERROR(SqliteStatement(database_,
                                      "UPDATE use_shares SET until_ms = ? WHERE lease_id = ? "
                                      "AND run_id <> ? AND until_ms = 0",
                                      "end the earlier uses")
                          .Bind(now_ms)
                          .Bind(lease_id)
                          .Bind(run_id)
                          .Run());
    }
    return InsertUse(database_, lease_id,
                     {std::string(run_id), std::string(run_name), now_ms, gpus, 0, limits});
  });
}

absl::Status Ledger::NameRun(absl::string_view run_id, absl::string_view run_name) {
  return Write("name_run", [&] {
    return SqliteStatement(database_,
                           "UPDATE uses SET run_name = ?1 WHERE run_id = ?2 AND run_name <> ?1",
                           "note the name of a run")
        .Bind(run_name)
        .Bind(run_id)
        .Run();
  });
}

absl::Status Ledger::UseEnded(absl::string_view run_id, int64_t ended_ms) {
  return Write("use_ended", [&] {
    return SqliteStatement(database_,
                           "UPDATE use_shares SET until_ms = MAX(1, ?) WHERE run_id = ? "
                           "AND until_ms = 0",
                           "note the end of a use")
        .Bind(ended_ms)
        .Bind(run_id)
        .Run();
  });
}

absl::StatusOr<std::vector<std::string>> Ledger::UsingRuns() {
  SqliteStatement row(database_, "SELECT run_id FROM use_shares WHERE until_ms = 0",
                      "read which runs use machines");
  std::vector<std::string> run_ids;
  while (true) {
    ASSIGN_OR_RETURN(const bool found, row.Step());
    if (!found) return run_ids;
    run_ids.push_back(row.Text(0));
  }
}

absl::Status Ledger::SetAddress(absl::string_view lease_id, const SshAddress& address) {
  return Write("address", [&]() -> absl::Status {
    RETURN_IF_ERROR(SqliteStatement(database_,
                                    "UPDATE leases SET host = ?, port = ?, user = ? "
                                    "WHERE lease_id = ?",
                                    "note an address")
                        .Bind(address.host)
                        .Bind(int64_t{address.port})
                        .Bind(address.user)
                        .Bind(lease_id)
                        .Run());
    return CheckStep(lease_id, "note the address of");
  });
}

}  // namespace gpuctl
