#include "client/wishes/wish_store.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/sqlite/sqlite.h"

namespace gpuctl {
namespace {

// Without a version of its own: a gpuctl that does not know it leaves it alone.
constexpr char kWishTable[] = R"sql(
CREATE TABLE IF NOT EXISTS wishes (
  wish_id TEXT PRIMARY KEY, run_id TEXT NOT NULL, dir TEXT NOT NULL, pull INTEGER NOT NULL,
  keep INTEGER NOT NULL, down INTEGER NOT NULL
) WITHOUT ROWID;
)sql";

Wish ReadWish(SqliteStatement& select) {
  Wish wish;
  wish.wish_id = select.Text(0);
  wish.run_id = select.Text(1);
  wish.dir = select.Text(2);
  wish.pull = select.Int(3) != 0;
  wish.keep = static_cast<int>(select.Int(4));
  wish.down = select.Int(5) != 0;
  return wish;
}

}  // namespace

std::string PlaceOf(const Wish& wish, absl::string_view run_name) {
  return JoinPath(wish.dir, run_name);
}

absl::StatusOr<std::unique_ptr<WishStore>> WishStore::Open(const std::string& path) {
  const std::string doing = absl::StrCat("open what was asked for runs in ", path);
  ASSIGN_OR_RETURN(sqlite3* const database, OpenSqlite(path, doing));
  std::unique_ptr<WishStore> store(new WishStore(database));
  // A database that can only be read is opened, too.
  SqliteStatement there(database, "SELECT 1 FROM sqlite_master WHERE name = 'wishes'", doing);
  ASSIGN_OR_RETURN(const bool found, there.Step());
  if (!found) RETURN_IF_ERROR(SqliteExecute(database, kWishTable, doing));
  return store;
}

WishStore::~WishStore() { sqlite3_close(database_); }

absl::Status WishStore::Insert(const Wish& wish) {
  return SqliteStatement(database_,
                         "INSERT INTO wishes (wish_id, run_id, dir, pull, keep, down) "
                         "VALUES (?, ?, ?, ?, ?, ?)",
                         "record what was asked for the run's end")
      .Bind(wish.wish_id)
      .Bind(wish.run_id)
      .Bind(wish.dir)
      .Bind(int64_t{wish.pull})
      .Bind(int64_t{wish.keep})
      .Bind(int64_t{wish.down})
      .Run();
}

absl::StatusOr<std::optional<Wish>> WishStore::Find(absl::string_view wish_id) {
  SqliteStatement select(database_,
                         "SELECT wish_id, run_id, dir, pull, keep, down FROM wishes "
                         "WHERE wish_id = ?",
                         "read what was asked for the run's end");
  ASSIGN_OR_RETURN(const bool found, select.Bind(wish_id).Step());
  if (!found) return std::nullopt;
  return std::make_optional(ReadWish(select));
}

absl::StatusOr<std::vector<Wish>> WishStore::List(absl::string_view run_id) {
  SqliteStatement select(database_,
                         "SELECT wish_id, run_id, dir, pull, keep, down FROM wishes "
                         "WHERE ?1 = '' OR run_id = ?1 ORDER BY wish_id",
                         "read what was asked for the ends of runs");
  select.Bind(run_id);
  std::vector<Wish> wishes;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return wishes;
    wishes.push_back(ReadWish(select));
  }
}

absl::Status WishStore::Drop(absl::string_view wish_id) {
  return SqliteStatement(database_, "DELETE FROM wishes WHERE wish_id = ?",
                         "drop what was asked for the run's end")
      .Bind(wish_id)
      .Run();
}

}  // namespace gpuctl
