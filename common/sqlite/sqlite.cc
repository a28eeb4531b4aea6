#include "common/sqlite/sqlite.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr int kBusyTimeoutMs = 10'000;

// Changes to the write-ahead log. The change locks the whole file for a moment, and SQLite then
// answers "busy" to others without asking the busy handler. So two first uses at once need this
// loop.
absl::Status UseWriteAheadLog(sqlite3* database, absl::string_view doing) {
  Clock& clock = Clock::Real();
  const absl::Duration end = clock.SinceBoot() + absl::Milliseconds(kBusyTimeoutMs);
  for (;;) {
    const absl::Status status =
        SqliteExecute(database, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;", doing);
    if (!absl::IsAborted(status) || clock.SinceBoot() >= end) return status;
    clock.SleepFor(absl::Milliseconds(5));
  }
}

// Makes the database private before SQLite does, or takes the rights of other users to an older
// one; SQLite's files beside a database get its mode. Opens no database that exists: closing it
// again would take the locks of this process.
void MakePrivate(const std::string& path) {
  const UniqueFd fresh(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (fresh.valid()) return;
  for (const char* ending : {"", "-wal", "-shm"}) {
    const std::string name = absl::StrCat(path, ending);
    struct stat info {};
    if (stat(name.c_str(), &info) == 0 && (info.st_mode & 077) != 0) {
      (void)chmod(name.c_str(), info.st_mode & 0700);
    }
  }
}

}  // namespace

absl::Status SqliteStatus(sqlite3* database, int code, absl::string_view doing) {
  const std::string message = absl::StrCat(
      doing, ": ", database == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(database));
  switch (code & 0xff) {
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(message);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::AbortedError(message);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(message);
    case SQLITE_CONSTRAINT:
      return absl::AlreadyExistsError(message);
    default:
      return absl::UnknownError(message);
  }
}

absl::Status SqliteExecute(sqlite3* database, const char* sql, absl::string_view doing) {
  const int code = sqlite3_exec(database, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : SqliteStatus(database, code, doing);
}

absl::StatusOr<sqlite3*> OpenSqlite(const std::string& path, absl::string_view doing) {
  RETURN_IF_ERROR(MakeDirectories(DirName(path)));
  MakePrivate(path);
  sqlite3* database = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  absl::Status status = code == SQLITE_OK ? absl::OkStatus() : SqliteStatus(database, code, doing);
  if (status.ok()) {
    sqlite3_busy_timeout(database, kBusyTimeoutMs);
    status = UseWriteAheadLog(database, doing);
  }
  if (status.ok()) return database;
  sqlite3_close(database);
  return status;
}

absl::StatusOr<sqlite3*> CopySqlite(const std::string& path, absl::string_view doing) {
  // A URI's own characters in the path.
  const std::string name = absl::StrReplaceAll(path, {{"%", "%25"}, {"?", "%3f"}, {"#", "%23"}});
  absl::Status status;
  // "immutable" reads without the files beside the database, which cannot be made now; what a
  // killed process left in its log is read only by the first.
  for (const char* how : {"?mode=ro", "?immutable=1"}) {
    sqlite3* source = nullptr;
    sqlite3* copy = nullptr;
    int code = sqlite3_open_v2(absl::StrCat("file:", name, how).c_str(), &source,
                               SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, nullptr);
    if (code == SQLITE_OK) code = sqlite3_open(":memory:", &copy);
    if (code == SQLITE_OK) {
      sqlite3_busy_timeout(source, kBusyTimeoutMs);
      sqlite3_backup* const backup = sqlite3_backup_init(copy, "main", source, "main");
      code = backup == nullptr ? sqlite3_errcode(copy) : sqlite3_backup_step(backup, -1);
      if (backup != nullptr) sqlite3_backup_finish(backup);
      if (code == SQLITE_DONE) code = SQLITE_OK;
    }
    sqlite3_close(source);
    if (code == SQLITE_OK) return copy;
    sqlite3_close(copy);
    status = SqliteStatus(nullptr, code, doing);
  }
  return status;
}

absl::StatusOr<int64_t> EnsureSchema(sqlite3* database, const char* schema) {
  const auto version = [database]() -> absl::StatusOr<int64_t> {
    SqliteStatement statement(database, "PRAGMA user_version", "read the schema version");
    ASSIGN_OR_RETURN(const bool row, statement.Step());
    return row ? statement.Int(0) : 0;
  };
  ASSIGN_OR_RETURN(int64_t found, version());
  if (found != 0) return found;
  // Two processes may both find it empty. The lock makes the second one see the first one's tables.
  RETURN_IF_ERROR(SqliteExecute(database, "BEGIN IMMEDIATE", "lock"));
  const absl::StatusOr<int64_t> again = version();
  absl::Status status = again.status();
  if (again.ok() && *again == 0) status = SqliteExecute(database, schema, "create the tables");
  RETURN_IF_ERROR(SqliteExecute(database, status.ok() ? "COMMIT" : "ROLLBACK", "commit"));
  RETURN_IF_ERROR(status);
  return version();
}

}  // namespace gpuctl
