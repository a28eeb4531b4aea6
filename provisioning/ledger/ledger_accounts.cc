// Which keys of a market belong to one account. A user may change the key, and a provider's answer
// is true of the key's own account alone.
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/sqlite/sqlite.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/ledger/ledger_rows.h"

namespace gpuctl {
namespace {

absl::Status StoreAccount(sqlite3* database, absl::string_view provider,
                          absl::string_view key_print, absl::string_view account) {
  return SqliteStatement(database,
                         "INSERT OR REPLACE INTO accounts (provider, key_print, account) "
                         "VALUES (?, ?, ?)",
                         "note whose a key is")
      .Bind(provider)
      .Bind(key_print)
      .Bind(account)
      .Run();
}

}  // namespace

absl::Status Ledger::SetKey(absl::string_view lease_id, absl::string_view key_print) {
  return Write("key", [&] { return InsertKeyPrint(database_, lease_id, key_print); });
}

absl::StatusOr<std::string> Ledger::AccountOf(absl::string_view provider,
                                              absl::string_view key_print) {
  SqliteStatement row(database_,
                      "SELECT account FROM accounts WHERE provider = ? AND key_print = ?",
                      "read whose a key is");
  row.Bind(provider).Bind(key_print);
  ASSIGN_OR_RETURN(const bool found, row.Step());
  return found ? row.Text(0) : "";
}

absl::Status Ledger::NoteAccount(absl::string_view provider, absl::string_view key_print,
                                 absl::string_view account) {
  return Write("account", [&] { return StoreAccount(database_, provider, key_print, account); });
}

absl::Status Ledger::JoinAccounts(absl::string_view provider, absl::string_view one,
                                  absl::string_view other) {
  return Write("account", [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::string first, AccountOf(provider, one));
    ASSIGN_OR_RETURN(const std::string second, AccountOf(provider, other));
    const std::string account = !first.empty()    ? first
                                : !second.empty() ? second
                                                  : absl::StrCat("key ", one);
    if (!second.empty()) {
      RETURN_IF_ERROR(SqliteStatement(database_,
                                      "UPDATE accounts SET account = ? WHERE provider = ? AND "
                                      "account = ?",
                                      "join two keys")
                          .Bind(account)
                          .Bind(provider)
                          .Bind(second)
                          .Run());
    }
    RETURN_IF_ERROR(StoreAccount(database_, provider, one, account));
    return StoreAccount(database_, provider, other, account);
  });
}

absl::StatusOr<bool> Ledger::IsOfAccount(const Lease& lease, absl::string_view key_print) {
  if (lease.key_print.empty() || key_print.empty() || lease.key_print == key_print) return true;
  ASSIGN_OR_RETURN(const std::string one, AccountOf(lease.provider, lease.key_print));
  ASSIGN_OR_RETURN(const std::string other, AccountOf(lease.provider, key_print));
  return !one.empty() && one == other;
}

}  // namespace gpuctl
