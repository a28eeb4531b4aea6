// SQLite for the list of runs and the ledger: opening a database, and one prepared statement.
#ifndef GPUCTL_COMMON_SQLITE_SQLITE_H_
#define GPUCTL_COMMON_SQLITE_SQLITE_H_

#include <sqlite3.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// Returns the status of an SQLite result code, with SQLite's own message.
absl::Status SqliteStatus(sqlite3* database, int code, absl::string_view doing);

// Opens or creates a database and its directory: with a write-ahead log, each commit synced, and
// ten seconds of waiting for other processes. The caller closes it. Errors begin with `doing`.
absl::StatusOr<sqlite3*> OpenSqlite(const std::string& path, absl::string_view doing);

// Returns a copy, in memory, of an existing database that cannot be opened for writing: its disk is
// full or read-only. What is written to it is lost when it is closed.
absl::StatusOr<sqlite3*> CopySqlite(const std::string& path, absl::string_view doing);

// Runs statements without parameters and results.
absl::Status SqliteExecute(sqlite3* database, const char* sql, absl::string_view doing);

// Makes the tables in an empty database; `schema` sets user_version. Returns the database's
// version, which may be that of a newer program.
absl::StatusOr<int64_t> EnsureSchema(sqlite3* database, const char* schema);

// A prepared statement. Each Bind call binds the next parameter. Step returns all errors, those of
// binding too.
class SqliteStatement {
 public:
  SqliteStatement(sqlite3* database, const char* sql, absl::string_view doing)
      : database_(database), doing_(doing) {
    code_ = sqlite3_prepare_v2(database, sql, -1, &statement_, nullptr);
  }
  ~SqliteStatement() { sqlite3_finalize(statement_); }
  SqliteStatement(const SqliteStatement&) = delete;
  SqliteStatement& operator=(const SqliteStatement&) = delete;

  SqliteStatement& Bind(absl::string_view text) {
    return Note(sqlite3_bind_text(statement_, ++bound_, text.data(), static_cast<int>(text.size()),
                                  SQLITE_TRANSIENT));
  }
  SqliteStatement& Bind(int64_t value) {
    return Note(sqlite3_bind_int64(statement_, ++bound_, value));
  }
  // SQLite has no NaN: this binds the text "nan", which a REAL column keeps.
  SqliteStatement& BindDouble(double value) {
    if (std::isnan(value)) return Bind(absl::string_view("nan"));
    return Note(sqlite3_bind_double(statement_, ++bound_, value));
  }
  SqliteStatement& BindNull() { return Note(sqlite3_bind_null(statement_, ++bound_)); }

  // Executes the next step. True when there is a row to read, false at the end.
  absl::StatusOr<bool> Step() {
    if (code_ == SQLITE_OK) code_ = sqlite3_step(statement_);
    if (code_ == SQLITE_ROW) {
      code_ = SQLITE_OK;
      return true;
    }
    if (code_ == SQLITE_DONE) return false;
    return SqliteStatus(database_, code_, doing_);
  }
  // Runs a statement without rows.
  absl::Status Run() { return Step().status(); }
  int result_code() const { return code_; }

  std::string Text(int column) {
    const unsigned char* text = sqlite3_column_text(statement_, column);
    const int size = sqlite3_column_bytes(statement_, column);
    return text == nullptr
               ? ""
               : std::string(reinterpret_cast<const char*>(text), static_cast<size_t>(size));
  }
  int64_t Int(int column) { return sqlite3_column_int64(statement_, column); }
  double Double(int column) {
    const bool is_text = sqlite3_column_type(statement_, column) == SQLITE_TEXT;
    return is_text && Text(column) == "nan" ? std::nan("")
                                            : sqlite3_column_double(statement_, column);
  }
  bool IsNull(int column) { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }

 private:
  SqliteStatement& Note(int code) {
    if (code_ == SQLITE_OK) code_ = code;
    return *this;
  }
  sqlite3* database_;
  std::string doing_;
  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK;
  int bound_ = 0;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_SQLITE_SQLITE_H_
