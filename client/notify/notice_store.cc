#include "client/notify/notice_store.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/sqlite/sqlite.h"

namespace gpuctl {
namespace {

constexpr char kTable[] = R"sql(
CREATE TABLE IF NOT EXISTS notices (
  run_id TEXT PRIMARY KEY,
  ended_ms INTEGER NOT NULL DEFAULT 0,
  sent TEXT NOT NULL DEFAULT '',
  tries INTEGER NOT NULL DEFAULT 0,
  next_ms INTEGER NOT NULL DEFAULT 0,
  done INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
)sql";

// One statement, so that of several processes one changes the row. The right sides see the row as
// it was.
constexpr char kClaim[] = R"sql(
UPDATE notices SET
  sent = CASE WHEN ended_ms = ?1 THEN sent ELSE '' END,
  next_ms = ?2 + 60000 * (1 << CASE WHEN ended_ms = ?1 THEN tries ELSE 0 END),
  tries = CASE WHEN ended_ms = ?1 THEN tries ELSE 0 END + 1,
  done = 0, ended_ms = ?1
WHERE run_id = ?3 AND (ended_ms <> ?1 OR (done = 0 AND tries < ?4 AND (tries = 0 OR next_ms <= ?2)))
)sql";

}  // namespace

absl::StatusOr<std::unique_ptr<NoticeStore>> NoticeStore::Open(const std::string& path) {
  const std::string doing = absl::StrCat("open the list of notices in ", path);
  ASSIGN_OR_RETURN(sqlite3* const database, OpenSqlite(path, doing));
  std::unique_ptr<NoticeStore> store(new NoticeStore(database));
  RETURN_IF_ERROR(SqliteExecute(database, kTable, doing));
  return store;
}

NoticeStore::~NoticeStore() { sqlite3_close(database_); }

absl::Status NoticeStore::Expect(absl::string_view run_id) {
  return SqliteStatement(database_, "INSERT OR IGNORE INTO notices (run_id) VALUES (?)",
                         "note that the run's end is to be told")
      .Bind(run_id)
      .Run();
}

absl::StatusOr<std::optional<NoticeStore::Claim>> NoticeStore::TryClaim(absl::string_view run_id,
                                                                        int64_t ended_ms,
                                                                        int64_t now_ms) {
  RETURN_IF_ERROR(SqliteStatement(database_, kClaim, "claim the notice of the run's end")
                      .Bind(ended_ms)
                      .Bind(now_ms)
                      .Bind(run_id)
                      .Bind(int64_t{kMostTries})
                      .Run());
  if (sqlite3_changes(database_) != 1) return std::nullopt;
  SqliteStatement select(database_, "SELECT sent, tries FROM notices WHERE run_id = ?",
                         "read the notice of the run's end");
  ASSIGN_OR_RETURN(const bool found, select.Bind(run_id).Step());
  if (!found) return std::nullopt;
  Claim claim;
  claim.sent = absl::StrSplit(select.Text(0), ' ', absl::SkipEmpty());
  claim.tries = static_cast<int>(select.Int(1));
  return claim;
}

absl::StatusOr<bool> NoticeStore::IsDue(absl::string_view run_id, int64_t ended_ms,
                                        int64_t now_ms) {
  SqliteStatement select(database_,
                         "SELECT 1 FROM notices WHERE run_id = ?3 AND (ended_ms <> ?1 OR "
                         "(done = 0 AND tries < ?4 AND (tries = 0 OR next_ms <= ?2)))",
                         "look for the notice of the run's end");
  return select.Bind(ended_ms).Bind(now_ms).Bind(run_id).Bind(int64_t{kMostTries}).Step();
}

absl::Status NoticeStore::Record(absl::string_view run_id, const std::set<std::string>& sent,
                                 bool done) {
  return SqliteStatement(database_, "UPDATE notices SET sent = ?, done = ? WHERE run_id = ?",
                         "record the notice of the run's end")
      .Bind(absl::StrJoin(sent, " "))
      .Bind(int64_t{done ? 1 : 0})
      .Bind(run_id)
      .Run();
}

absl::StatusOr<std::vector<std::string>> NoticeStore::Waiting() {
  // Runs that were removed from the list are never told.
  RETURN_IF_ERROR(SqliteExecute(database_,
                                "DELETE FROM notices WHERE run_id NOT IN (SELECT run_id FROM runs)",
                                "forget the notices of removed runs"));
  SqliteStatement select(database_,
                         "SELECT n.run_id FROM notices n JOIN runs r ON r.run_id = n.run_id "
                         "WHERE r.end_state IS NOT NULL AND (n.ended_ms <> r.ended_ms OR "
                         "(n.done = 0 AND n.tries < ?)) ORDER BY r.ended_ms",
                         "list the ends that are to be told");
  select.Bind(int64_t{kMostTries});
  std::vector<std::string> ids;
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, select.Step());
    if (!more) return ids;
    ids.push_back(select.Text(0));
  }
}

}  // namespace gpuctl
