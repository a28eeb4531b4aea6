#include "client/batch/batch_store.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/suggest.h"
#include "client/batch/entry_is_live.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/sqlite/sqlite.h"

namespace gpuctl {
namespace {

// Tables without a version of their own: a gpuctl that does not know them leaves them alone.
constexpr char kTables[] = R"sql(
CREATE TABLE IF NOT EXISTS batches (
  batch_id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, digest TEXT NOT NULL,
  created_ms INTEGER NOT NULL, max_parallel INTEGER NOT NULL, max_cost_usd REAL,
  rents INTEGER NOT NULL, agreed_usd_per_hour REAL NOT NULL, tags TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batch_hosts (
  batch_id TEXT NOT NULL, position INTEGER NOT NULL, host TEXT NOT NULL, port INTEGER NOT NULL,
  identity TEXT NOT NULL, target_name TEXT NOT NULL, not_before_ms INTEGER NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0, why TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (batch_id, host)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batch_entries (
  entry_id TEXT PRIMARY KEY, batch_id TEXT NOT NULL, number INTEGER NOT NULL,
  name TEXT NOT NULL UNIQUE, parameters TEXT NOT NULL, launch TEXT NOT NULL,
  priority INTEGER NOT NULL, after TEXT NOT NULL, state TEXT NOT NULL, why TEXT NOT NULL DEFAULT '',
  run_id TEXT NOT NULL DEFAULT '', machine TEXT NOT NULL DEFAULT '',
  not_before_ms INTEGER NOT NULL DEFAULT 0, failures INTEGER NOT NULL DEFAULT 0,
  resumes INTEGER NOT NULL DEFAULT 0, followed INTEGER NOT NULL DEFAULT 0,
  outcome TEXT NOT NULL DEFAULT '', gpus INTEGER NOT NULL DEFAULT -1
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS batch_entries_batch ON batch_entries (batch_id, number);
CREATE INDEX IF NOT EXISTS batch_entries_live ON batch_entries (state)
  WHERE state IN ('waiting', 'starting', 'started');
CREATE TABLE IF NOT EXISTS batch_attempts (
  run_id TEXT PRIMARY KEY, entry_id TEXT NOT NULL, batch_id TEXT NOT NULL,
  reserved_usd REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS batch_attempts_batch ON batch_attempts (batch_id);
CREATE TABLE IF NOT EXISTS batch_entry_files (
  entry_id TEXT PRIMARY KEY, file TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batch_stop_wishes (run_id TEXT PRIMARY KEY) WITHOUT ROWID;
)sql";

// Entries whose end no pass has noted yet: what is open is found without reading what is over.
constexpr char kOpenIndex[] =
    "CREATE INDEX IF NOT EXISTS batch_entries_open ON batch_entries (entry_id) "
    "WHERE state = 'started' AND outcome = ''";

constexpr char kScheduleTable[] = R"sql(
CREATE TABLE IF NOT EXISTS batch_schedules (
  batch_id TEXT PRIMARY KEY, cron TEXT NOT NULL, launch TEXT NOT NULL, overlap INTEGER NOT NULL,
  priority INTEGER NOT NULL, resumes INTEGER NOT NULL, gpus INTEGER NOT NULL,
  next_ms INTEGER NOT NULL, last_ms INTEGER NOT NULL DEFAULT 0, ended INTEGER NOT NULL DEFAULT 0,
  why TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
)sql";

// Runs whose entries were called off while they were being started or ran: one that has to start
// again does not, for the reason `why`.
constexpr char kCalledOffTable[] =
    "CREATE TABLE IF NOT EXISTS batch_called_off "
    "(run_id TEXT PRIMARY KEY, why TEXT NOT NULL) WITHOUT ROWID";

// Columns that came later. A gpuctl that does not know them leaves them at their defaults.
constexpr char kFailuresColumn[] =
    "ALTER TABLE batches ADD COLUMN max_failures INTEGER NOT NULL DEFAULT 0";
constexpr char kArrayColumn[] =
    "ALTER TABLE batches ADD COLUMN array_tasks INTEGER NOT NULL DEFAULT 0";

#define GPUCTL_ENTRY_COLUMNS                                                                  \
  "e.entry_id, e.batch_id, e.number, e.name, e.parameters, e.launch, e.priority, e.after, "   \
  "e.state, e.why, e.run_id, e.machine, e.not_before_ms, e.failures, e.resumes, e.followed, " \
  "e.outcome, e.gpus, "                                                                       \
  "(SELECT f.file FROM batch_entry_files f WHERE f.entry_id = e.entry_id)"

EntryState StateOf(absl::string_view word) {
  for (const EntryState state :
       {EntryState::kWaiting, EntryState::kStarting, EntryState::kStarted, EntryState::kFailed}) {
    if (word == EntryStateWord(state)) return state;
  }
  return EntryState::kCancelled;
}

std::string ToText(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<std::string> StringsOf(const std::string& text) {
  std::vector<std::string> strings;
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_array()) return strings;
  for (const nlohmann::json& one : json) {
    if (one.is_string()) strings.push_back(one.get<std::string>());
  }
  return strings;
}

Parameters ReadParameters(const std::string& text) {
  Parameters parameters;
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_array()) return parameters;
  for (const nlohmann::json& one : json) {
    if (one.is_array() && one.size() == 2 && one[0].is_string() && one[1].is_string()) {
      parameters.emplace_back(one[0].get<std::string>(), one[1].get<std::string>());
    }
  }
  return parameters;
}

Entry ReadEntry(SqliteStatement& row) {
  Entry entry;
  int column = 0;
  entry.entry_id = row.Text(column++);
  entry.batch_id = row.Text(column++);
  entry.number = static_cast<int>(row.Int(column++));
  entry.name = row.Text(column++);
  entry.parameters = ReadParameters(row.Text(column++));
  entry.launch_json = row.Text(column++);
  entry.priority = static_cast<int>(row.Int(column++));
  entry.after = StringsOf(row.Text(column++));
  entry.state = StateOf(row.Text(column++));
  entry.why = row.Text(column++);
  entry.run_id = row.Text(column++);
  entry.machine = row.Text(column++);
  entry.not_before_ms = row.Int(column++);
  entry.failures = static_cast<int>(row.Int(column++));
  entry.resumes = static_cast<int>(row.Int(column++));
  entry.followed = static_cast<int>(row.Int(column++));
  entry.outcome = row.Text(column++);
  entry.gpus = static_cast<int>(row.Int(column++));
  entry.file = row.Text(column++);
  return entry;
}

Batch ReadBatch(SqliteStatement& row) {
  Batch batch;
  batch.batch_id = row.Text(0);
  batch.name = row.Text(1);
  batch.digest = row.Text(2);
  batch.created_ms = row.Int(3);
  batch.max_parallel = static_cast<int>(row.Int(4));
  if (!row.IsNull(5)) batch.max_cost_usd = row.Double(5);
  batch.rents = row.Int(6) != 0;
  batch.agreed_usd_per_hour = row.Double(7);
  batch.tags = StringsOf(row.Text(8));
  batch.max_failures = static_cast<int>(row.Int(9));
  batch.array = row.Int(10) != 0;
  return batch;
}

constexpr char kBatchColumns[] =
    "SELECT batch_id, name, digest, created_ms, max_parallel, max_cost_usd, rents, "
    "agreed_usd_per_hour, tags, max_failures, array_tasks FROM batches b ";

absl::Status InsertHosts(sqlite3* database, const Batch& batch) {
  for (size_t i = 0; i < batch.hosts.size(); ++i) {
    const BatchHost& host = batch.hosts[i];
    SqliteStatement insert(database,
                           "INSERT OR IGNORE INTO batch_hosts "
                           "(batch_id, position, host, port, identity, target_name) "
                           "VALUES (?, ?, ?, ?, ?, ?)",
                           "record a machine of the batch");
    insert.Bind(batch.batch_id).Bind(static_cast<int64_t>(i)).Bind(host.host);
    insert.Bind(int64_t{host.port}).Bind(host.identity).Bind(host.target_name);
    RETURN_IF_ERROR(insert.Run());
  }
  return absl::OkStatus();
}

// Notes that the entries whose `column` has this value do not start again, where they have begun.
absl::Status CallOffBegun(sqlite3* database, const char* column, absl::string_view value,
                          absl::string_view why) {
  const std::string query = absl::StrCat(
      "INSERT OR IGNORE INTO batch_called_off SELECT run_id, ? FROM batch_entries WHERE ", column,
      " = ? AND state IN ('starting', 'started')");
  return SqliteStatement(database, query.c_str(), "call off what has begun")
      .Bind(why)
      .Bind(value)
      .Run();
}

void BindCost(SqliteStatement& statement, const std::optional<double>& cost) {
  if (cost.has_value()) {
    statement.BindDouble(*cost);
  } else {
    statement.BindNull();
  }
}

}  // namespace

const char* EntryStateWord(EntryState state) {
  switch (state) {
    case EntryState::kWaiting:
      return "waiting";
    case EntryState::kStarting:
      return "starting";
    case EntryState::kStarted:
      return "started";
    case EntryState::kFailed:
      return "failed";
    case EntryState::kCancelled:
      break;
  }
  return "cancelled";
}

std::string EntryLockPath(absl::string_view state_dir, absl::string_view entry_id) {
  return JoinPath(state_dir, absl::StrCat("locks/entry-", entry_id));
}

std::string EntryLogPath(absl::string_view state_dir, absl::string_view entry_id) {
  return JoinPath(state_dir, absl::StrCat("batches/", entry_id, ".log"));
}

absl::StatusOr<std::unique_ptr<BatchStore>> BatchStore::Open(const std::string& path) {
  const std::string doing = absl::StrCat("open the list of batches in ", path);
  ASSIGN_OR_RETURN(sqlite3* const database, OpenSqlite(path, doing));
  std::unique_ptr<BatchStore> store(new BatchStore(database));
  SqliteStatement there(database, "SELECT 1 FROM sqlite_master WHERE name = 'batch_attempts_batch'",
                        doing);
  ASSIGN_OR_RETURN(const bool found, there.Step());
  if (!found) RETURN_IF_ERROR(SqliteExecute(database, kTables, doing));
  SqliteStatement scheduled(database, "SELECT 1 FROM sqlite_master WHERE name = 'batch_schedules'",
                            doing);
  ASSIGN_OR_RETURN(const bool has_schedules, scheduled.Step());
  if (!has_schedules) RETURN_IF_ERROR(SqliteExecute(database, kScheduleTable, doing));
  SqliteStatement called_off(database,
                             "SELECT 1 FROM sqlite_master WHERE name = 'batch_called_off'", doing);
  ASSIGN_OR_RETURN(const bool has_called_off, called_off.Step());
  if (!has_called_off) RETURN_IF_ERROR(SqliteExecute(database, kCalledOffTable, doing));
  SqliteStatement indexed(database, "SELECT 1 FROM sqlite_master WHERE name = 'batch_entries_open'",
                          doing);
  ASSIGN_OR_RETURN(const bool has_index, indexed.Step());
  if (!has_index) RETURN_IF_ERROR(SqliteExecute(database, kOpenIndex, doing));
  RETURN_IF_ERROR(store->AddColumn("max_failures", kFailuresColumn));
  RETURN_IF_ERROR(store->AddColumn("array_tasks", kArrayColumn));
  return store;
}

absl::StatusOr<bool> BatchStore::HasColumn(absl::string_view name) {
  SqliteStatement select(database_, "SELECT 1 FROM pragma_table_info('batches') WHERE name = ?",
                         "look at the tables of batches");
  return select.Bind(name).Step();
}

absl::Status BatchStore::AddColumn(absl::string_view name, const char* statement) {
  ASSIGN_OR_RETURN(const bool there, HasColumn(name));
  if (there) return absl::OkStatus();
  return InTransaction([&]() -> absl::Status {
    // Another process may have added it meanwhile.
    ASSIGN_OR_RETURN(const bool there_now, HasColumn(name));
    return there_now ? absl::OkStatus()
                     : SqliteExecute(database_, statement, "change the tables of batches");
  });
}

BatchStore::~BatchStore() { sqlite3_close(database_); }

absl::Status BatchStore::InTransaction(const std::function<absl::Status()>& work) {
  RETURN_IF_ERROR(SqliteExecute(database_, "BEGIN IMMEDIATE", "lock the list of batches"));
  const absl::Status done = work();
  const absl::Status ended =
      SqliteExecute(database_, done.ok() ? "COMMIT" : "ROLLBACK", "change the list of batches");
  // What failed to commit is not there; the transaction must not stay open.
  if (done.ok() && !ended.ok()) (void)SqliteExecute(database_, "ROLLBACK", "undo a change");
  RETURN_IF_ERROR(done);
  return ended;
}

absl::Status BatchStore::InsertLocked(const Batch& batch, const std::vector<Entry>& entries) {
  SqliteStatement insert(
      database_,
      "INSERT INTO batches (batch_id, name, digest, created_ms, max_parallel, "
      "max_cost_usd, rents, agreed_usd_per_hour, tags, max_failures, array_tasks) "
      "SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11 "
      "WHERE NOT EXISTS (SELECT 1 FROM batches WHERE name = ?2)",
      "record the batch");
  insert.Bind(batch.batch_id).Bind(batch.name).Bind(batch.digest).Bind(batch.created_ms);
  insert.Bind(int64_t{batch.max_parallel});
  BindCost(insert, batch.max_cost_usd);
  insert.Bind(int64_t{batch.rents}).BindDouble(batch.agreed_usd_per_hour);
  insert.Bind(ToText(batch.tags)).Bind(int64_t{batch.max_failures}).Bind(int64_t{batch.array});
  RETURN_IF_ERROR(insert.Run());
  if (sqlite3_changes(database_) != 1) {
    return absl::AlreadyExistsError(absl::StrCat("there is a batch ", batch.name));
  }
  RETURN_IF_ERROR(InsertHosts(database_, batch));
  return InsertEntries(batch.batch_id, entries);
}

absl::Status BatchStore::InsertEntries(const std::string& batch_id,
                                       const std::vector<Entry>& entries) {
  for (const Entry& entry : entries) {
    nlohmann::json parameters = nlohmann::json::array();
    for (const auto& [name, value] : entry.parameters) parameters.push_back({name, value});
    SqliteStatement one(database_,
                        "INSERT INTO batch_entries (entry_id, batch_id, number, name, parameters, "
                        "launch, priority, after, state, resumes, gpus) "
                        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'waiting', ?, ?)",
                        absl::StrCat("record entry ", entry.name));
    one.Bind(entry.entry_id).Bind(batch_id).Bind(int64_t{entry.number}).Bind(entry.name);
    one.Bind(ToText(parameters)).Bind(entry.launch_json).Bind(int64_t{entry.priority});
    one.Bind(ToText(entry.after)).Bind(int64_t{entry.resumes}).Bind(int64_t{entry.gpus});
    RETURN_IF_ERROR(one.Run());
    if (entry.file.empty()) continue;
    SqliteStatement file(database_, "INSERT INTO batch_entry_files (entry_id, file) VALUES (?, ?)",
                         absl::StrCat("record the file of entry ", entry.name));
    RETURN_IF_ERROR(file.Bind(entry.entry_id).Bind(entry.file).Run());
  }
  return absl::OkStatus();
}

absl::Status BatchStore::Insert(const Batch& batch, const std::vector<Entry>& entries) {
  return InTransaction([&] { return InsertLocked(batch, entries); });
}

// Gives the batch `id` another name than `name`, and cancels what waits of it.
absl::StatusOr<ReplacedBatch> BatchStore::MakeRoomLocked(const std::string& name,
                                                         absl::string_view id) {
  ReplacedBatch replaced;
  const std::string base = absl::StrCat(name.substr(0, kLongestBatchName - 8), ".old");
  for (int number = 1; replaced.name.empty(); ++number) {
    const std::string free = number == 1 ? base : absl::StrCat(base, number);
    SqliteStatement taken(database_, "SELECT 1 FROM batches WHERE name = ?", "name the batch");
    ASSIGN_OR_RETURN(const bool found, taken.Bind(free).Step());
    if (!found) replaced.name = free;
  }
  SqliteStatement rename(database_, "UPDATE batches SET name = ? WHERE batch_id = ? AND name = ?",
                         "name the batch");
  RETURN_IF_ERROR(rename.Bind(replaced.name).Bind(id).Bind(name).Run());
  if (sqlite3_changes(database_) != 1) {
    return absl::AlreadyExistsError(absl::StrCat("there is another batch ", name, " by now"));
  }
  SqliteStatement cancel(database_,
                         "UPDATE batch_entries SET state = 'cancelled', why = ? "
                         "WHERE batch_id = ? AND state = 'waiting'",
                         "cancel what waits");
  RETURN_IF_ERROR(cancel.Bind(kReplacedByUser).Bind(id).Run());
  replaced.cancelled = sqlite3_changes(database_);
  RETURN_IF_ERROR(CallOffBegun(database_, "batch_id", id, kReplacedByUser));
  SqliteStatement live(database_,
                       "SELECT COUNT(*) FROM batch_entries WHERE batch_id = ? AND "
                       "entry_id IN (" GPUCTL_LIVE_ENTRY_IDS ")",
                       "count what runs");
  ASSIGN_OR_RETURN(const bool counted, live.Bind(id).Step());
  replaced.live = counted ? static_cast<int>(live.Int(0)) : 0;
  return replaced;
}

absl::StatusOr<ReplacedBatch> BatchStore::Replace(const Batch& batch,
                                                  const std::vector<Entry>& entries,
                                                  absl::string_view before_id) {
  ReplacedBatch replaced;
  RETURN_IF_ERROR(InTransaction([&]() -> absl::Status {
    ASSIGN_OR_RETURN(replaced, MakeRoomLocked(batch.name, before_id));
    return InsertLocked(batch, entries);
  }));
  return replaced;
}

absl::Status BatchStore::SetLimits(const Batch& batch) {
  return InTransaction([&]() -> absl::Status {
    SqliteStatement update(database_,
                           "UPDATE batches SET max_parallel = ?, max_cost_usd = ?, rents = ?, "
                           "agreed_usd_per_hour = ?, max_failures = ? WHERE batch_id = ?",
                           "record the batch's limits");
    update.Bind(int64_t{batch.max_parallel});
    BindCost(update, batch.max_cost_usd);
    update.Bind(int64_t{batch.rents}).BindDouble(batch.agreed_usd_per_hour);
    update.Bind(int64_t{batch.max_failures}).Bind(batch.batch_id);
    RETURN_IF_ERROR(update.Run());
    return InsertHosts(database_, batch);
  });
}

absl::Status BatchStore::ReadHosts(Batch& batch) {
  SqliteStatement select(database_,
                         "SELECT host, port, identity, target_name, not_before_ms, failures, why "
                         "FROM batch_hosts WHERE batch_id = ? ORDER BY position, host",
                         "read the machines of the batch");
  select.Bind(batch.batch_id);
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return absl::OkStatus();
    BatchHost& host = batch.hosts.emplace_back();
    host.host = select.Text(0);
    host.port = static_cast<int>(select.Int(1));
    host.identity = select.Text(2);
    host.target_name = select.Text(3);
    host.not_before_ms = select.Int(4);
    host.failures = static_cast<int>(select.Int(5));
    host.why = select.Text(6);
  }
}

absl::StatusOr<std::vector<Batch>> BatchStore::SelectBatches(
    absl::string_view where, std::optional<absl::string_view> value) {
  std::vector<Batch> batches;
  {
    const std::string query = absl::StrCat(kBatchColumns, where, " ORDER BY created_ms, name");
    SqliteStatement select(database_, query.c_str(), "list the batches");
    if (value.has_value()) select.Bind(*value);
    while (true) {
      ASSIGN_OR_RETURN(const bool row, select.Step());
      if (!row) break;
      batches.push_back(ReadBatch(select));
    }
  }
  for (Batch& batch : batches) RETURN_IF_ERROR(ReadHosts(batch));
  return batches;
}

absl::StatusOr<std::vector<Batch>> BatchStore::List(bool open_only) {
  constexpr absl::string_view kOpen =
      "WHERE b.batch_id IN (SELECT batch_id FROM batch_entries WHERE state = 'waiting' "
      "UNION SELECT batch_id FROM batch_entries WHERE entry_id IN (" GPUCTL_LIVE_ENTRY_IDS
      ") UNION SELECT batch_id FROM batch_schedules WHERE NOT ended)";
  return SelectBatches(open_only ? kOpen : "", std::nullopt);
}

absl::StatusOr<std::vector<Batch>> BatchStore::Named(const std::vector<std::string>& names) {
  std::vector<Batch> batches;
  for (const std::string& name : std::set<std::string>(names.begin(), names.end())) {
    ASSIGN_OR_RETURN(std::vector<Batch> found, SelectBatches("WHERE name = ?", name));
    for (Batch& batch : found) batches.push_back(std::move(batch));
  }
  std::sort(batches.begin(), batches.end(), [](const Batch& a, const Batch& b) {
    return std::tie(a.created_ms, a.name) < std::tie(b.created_ms, b.name);
  });
  return batches;
}

absl::StatusOr<Batch> BatchStore::WithId(absl::string_view batch_id) {
  ASSIGN_OR_RETURN(std::vector<Batch> found, SelectBatches("WHERE batch_id = ?", batch_id));
  if (found.empty()) return absl::NotFoundError(absl::StrCat("batch ", batch_id, " is gone"));
  return std::move(found.front());
}

absl::StatusOr<Batch> BatchStore::Get(absl::string_view name) {
  const std::string query = absl::StrCat(kBatchColumns, "WHERE name = ?");
  SqliteStatement select(database_, query.c_str(), "read the batch");
  ASSIGN_OR_RETURN(const bool found, select.Bind(name).Step());
  if (found) {
    Batch batch = ReadBatch(select);
    RETURN_IF_ERROR(ReadHosts(batch));
    return batch;
  }
  SqliteStatement all(database_, "SELECT name FROM batches ORDER BY created_ms, name",
                      "list the batches");
  std::vector<std::string> names;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, all.Step());
    if (!row) break;
    names.push_back(all.Text(0));
  }
  return WithExitCode(
      WithHint(absl::NotFoundError(
                   absl::StrCat("no batch \"", name, "\"", DidYouMean(std::string(name), names))),
               names.empty() ? "submit one: gpuctl submit --sweep lr=1e-4,2e-4 -- COMMAND"
                             : "gpuctl queue lists them"),
      kExitUsage);
}

absl::StatusOr<std::vector<Entry>> BatchStore::Select(const char* where, absl::string_view value) {
  const std::string query =
      absl::StrCat("SELECT " GPUCTL_ENTRY_COLUMNS " FROM batch_entries e WHERE ", where,
                   " ORDER BY e.batch_id, e.number");
  SqliteStatement select(database_, query.c_str(), "read the entries of the batch");
  select.Bind(value);
  std::vector<Entry> entries;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return entries;
    entries.push_back(ReadEntry(select));
  }
}

absl::StatusOr<std::vector<Entry>> BatchStore::Entries(absl::string_view batch_id) {
  return Select("e.batch_id = ?", batch_id);
}

absl::StatusOr<std::map<std::string, int64_t>> BatchStore::Waiting() {
  std::map<std::string, int64_t> waiting;
  SqliteStatement select(database_,
                         "SELECT b.name, COUNT(*) FROM batch_entries e JOIN batches b USING "
                         "(batch_id) WHERE e.state = 'waiting' GROUP BY b.name",
                         "count the runs that wait");
  while (true) {
    ASSIGN_OR_RETURN(const bool found, select.Step());
    if (!found) return waiting;
    waiting[select.Text(0)] = select.Int(1);
  }
}

absl::StatusOr<std::vector<BatchStore::WaitingEntry>> BatchStore::ListWaiting(int most) {
  SqliteStatement select(
      database_,
      "SELECT e.entry_id, e.name, b.name, e.parameters, e.why FROM batch_entries e "
      "JOIN batches b USING (batch_id) WHERE e.state = 'waiting' "
      "ORDER BY b.created_ms, b.batch_id, e.number LIMIT ?",
      "list the runs that wait");
  select.Bind(int64_t{most});
  std::vector<WaitingEntry> entries;
  while (true) {
    ASSIGN_OR_RETURN(const bool found, select.Step());
    if (!found) return entries;
    entries.push_back({select.Text(0), select.Text(1), select.Text(2),
                       ReadParameters(select.Text(3)), select.Text(4)});
  }
}

absl::StatusOr<Parameters> BatchStore::ParametersOf(absl::string_view run_id) {
  SqliteStatement select(database_,
                         "SELECT e.parameters FROM batch_attempts a JOIN batch_entries e "
                         "USING (entry_id) WHERE a.run_id = ?",
                         "read the run's parameters");
  select.Bind(run_id);
  ASSIGN_OR_RETURN(const bool found, select.Step());
  return found ? ReadParameters(select.Text(0)) : Parameters();
}

absl::StatusOr<std::vector<Entry>> BatchStore::Starting() {
  return Select("e.state = ?", EntryStateWord(EntryState::kStarting));
}

absl::StatusOr<std::optional<Entry>> BatchStore::FindEntry(absl::string_view reference) {
  ASSIGN_OR_RETURN(std::vector<Entry> found, Select("(e.entry_id = ?1 OR e.name = ?1)", reference));
  if (found.empty()) return std::optional<Entry>();
  return std::optional<Entry>(std::move(found.front()));
}

absl::StatusOr<std::vector<Attempt>> BatchStore::Attempts(absl::string_view batch_id) {
  SqliteStatement select(database_,
                         "SELECT a.run_id, a.entry_id, a.batch_id, a.reserved_usd, "
                         "e.run_id = a.run_id AND " GPUCTL_ENTRY_IS_LIVE
                         ", e.run_id = a.run_id AND e.state = 'starting' FROM batch_attempts a "
                         "JOIN batch_entries e USING (entry_id) "
                         "LEFT JOIN runs r ON r.run_id = a.run_id WHERE a.batch_id = ?",
                         "read what the batch has started");
  select.Bind(batch_id);
  std::vector<Attempt> attempts;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return attempts;
    attempts.push_back({select.Text(0), select.Text(1), select.Text(2), select.Double(3),
                        select.Int(4) != 0, select.Int(5) != 0});
  }
}

absl::Status BatchStore::CheckMachineIsFree(const ClaimRequest& request) {
  if (request.machine.empty() || request.shares) return absl::OkStatus();
  SqliteStatement taken(database_,
                        "SELECT e.name FROM batch_entries e "
                        "WHERE e.entry_id IN (" GPUCTL_LIVE_ENTRY_IDS
                        ") AND e.machine = ?1 UNION ALL SELECT name FROM runs "
                        "WHERE target_name = ?1 AND end_state IS NULL LIMIT 1",
                        "look whether the machine is free");
  ASSIGN_OR_RETURN(const bool is_taken, taken.Bind(request.machine).Step());
  if (!is_taken) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(request.machine, " has ", taken.Text(0)));
}

absl::Status BatchStore::ClaimLocked(const ClaimRequest& request) {
  std::string batch_id;
  int64_t max_parallel = 0;
  std::optional<double> max_cost_usd;
  {
    SqliteStatement select(database_,
                           "SELECT batch_id, max_parallel, max_cost_usd FROM batch_entries "
                           "JOIN batches USING (batch_id) WHERE entry_id = ? "
                           "AND state = 'waiting'",
                           "read the entry");
    ASSIGN_OR_RETURN(const bool waits, select.Bind(request.entry_id).Step());
    if (!waits) return absl::FailedPreconditionError("it does not wait any more");
    batch_id = select.Text(0);
    max_parallel = select.Int(1);
    if (!select.IsNull(2)) max_cost_usd = select.Double(2);
  }
  {
    SqliteStatement count(database_,
                          "SELECT COUNT(*) FROM batch_entries e "
                          "WHERE e.entry_id IN (" GPUCTL_LIVE_ENTRY_IDS ") AND e.batch_id = ?",
                          "count what runs of the batch");
    RETURN_IF_ERROR(count.Bind(batch_id).Step().status());
    if (!request.task && count.Int(0) >= max_parallel) {
      return absl::FailedPreconditionError("as many run as may run at once");
    }
  }
  RETURN_IF_ERROR(CheckMachineIsFree(request));
  if (max_cost_usd.has_value() && request.check_cost) {
    ASSIGN_OR_RETURN(const std::vector<Attempt> attempts, Attempts(batch_id));
    RETURN_IF_ERROR(request.check_cost(*max_cost_usd, attempts));
  }
  SqliteStatement claim(database_,
                        "UPDATE batch_entries SET state = 'starting', run_id = ?, machine = ?, "
                        "why = '', followed = 0, outcome = '' WHERE entry_id = ?",
                        "claim the entry");
  RETURN_IF_ERROR(claim.Bind(request.run_id).Bind(request.machine).Bind(request.entry_id).Run());
  SqliteStatement attempt(database_,
                          "INSERT INTO batch_attempts (run_id, entry_id, batch_id, reserved_usd) "
                          "VALUES (?, ?, ?, ?)",
                          "record the start");
  return attempt.Bind(request.run_id)
      .Bind(request.entry_id)
      .Bind(batch_id)
      .BindDouble(request.reserved_usd)
      .Run();
}

absl::Status BatchStore::Claim(const ClaimRequest& request) {
  return InTransaction([&] { return ClaimLocked(request); });
}

absl::StatusOr<bool> BatchStore::WishStop(absl::string_view entry_id) {
  RETURN_IF_ERROR(SqliteStatement(database_,
                                  "INSERT OR REPLACE INTO batch_stop_wishes (run_id) "
                                  "SELECT run_id FROM batch_entries "
                                  "WHERE entry_id = ? AND state = 'starting'",
                                  "note that the run is to be stopped")
                      .Bind(entry_id)
                      .Run());
  return sqlite3_changes(database_) == 1;
}

absl::StatusOr<bool> BatchStore::IsStopWished(absl::string_view run_id) {
  SqliteStatement select(database_, "SELECT 1 FROM batch_stop_wishes WHERE run_id = ?",
                         "look whether the run is to be stopped");
  return select.Bind(run_id).Step();
}

absl::Status BatchStore::MarkStarted(absl::string_view entry_id, absl::string_view run_id) {
  return SqliteStatement(database_,
                         "UPDATE batch_entries SET state = 'started', failures = 0, why = '' "
                         "WHERE entry_id = ? AND run_id = ? AND state = 'starting'",
                         "record the start")
      .Bind(entry_id)
      .Bind(run_id)
      .Run();
}

absl::Status BatchStore::Follow(absl::string_view entry_id, absl::string_view before,
                                absl::string_view run_id) {
  return InTransaction([&]() -> absl::Status {
    SqliteStatement update(database_,
                           "UPDATE batch_entries SET run_id = ?, followed = followed + 1 "
                           "WHERE entry_id = ? AND run_id = ? AND state = 'started'",
                           "record the run that goes on");
    RETURN_IF_ERROR(update.Bind(run_id).Bind(entry_id).Bind(before).Run());
    if (sqlite3_changes(database_) != 1) return absl::OkStatus();
    SqliteStatement attempt(database_,
                            "INSERT OR IGNORE INTO batch_attempts "
                            "(run_id, entry_id, batch_id, reserved_usd) "
                            "SELECT ?, entry_id, batch_id, reserved_usd FROM batch_attempts "
                            "WHERE run_id = ?",
                            "record the run that goes on");
    return attempt.Bind(run_id).Bind(before).Run();
  });
}

absl::Status BatchStore::EndResumes(absl::string_view entry_id, absl::string_view run_id) {
  return SqliteStatement(database_,
                         "UPDATE batch_entries SET followed = resumes WHERE entry_id = ? "
                         "AND run_id = ? AND state = 'started' AND followed < resumes",
                         "record that the run is not resumed")
      .Bind(entry_id)
      .Bind(run_id)
      .Run();
}

absl::Status BatchStore::SetOutcomes(const std::vector<Entry>& entries) {
  if (entries.empty()) return absl::OkStatus();
  return InTransaction([&]() -> absl::Status {
    for (const Entry& entry : entries) {
      SqliteStatement update(database_,
                             "UPDATE batch_entries SET outcome = ? WHERE entry_id = ? "
                             "AND run_id = ? AND state = 'started'",
                             "record what became of the run");
      RETURN_IF_ERROR(update.Bind(entry.outcome).Bind(entry.entry_id).Bind(entry.run_id).Run());
    }
    return absl::OkStatus();
  });
}

absl::Status BatchStore::Release(absl::string_view entry_id, absl::string_view run_id,
                                 absl::string_view why, int64_t not_before_ms, bool failed) {
  return SqliteStatement(database_,
                         "UPDATE batch_entries SET "
                         "state = CASE WHEN run_id IN (SELECT run_id FROM batch_stop_wishes "
                         "UNION SELECT run_id FROM batch_called_off) "
                         "THEN 'cancelled' ELSE 'waiting' END, "
                         "why = CASE WHEN run_id IN (SELECT run_id FROM batch_stop_wishes) THEN ? "
                         "ELSE COALESCE((SELECT c.why FROM batch_called_off c "
                         "WHERE c.run_id = batch_entries.run_id), ?) END, machine = '', "
                         "not_before_ms = ?, failures = failures + ? "
                         "WHERE entry_id = ? AND run_id = ? AND state IN ('starting', 'started')",
                         "let the entry wait again")
      .Bind(kCancelledByUser)
      .Bind(why)
      .Bind(not_before_ms)
      .Bind(int64_t{failed})
      .Bind(entry_id)
      .Bind(run_id)
      .Run();
}

absl::StatusOr<bool> BatchStore::EndWaiting(absl::string_view entry_id, EntryState state,
                                            absl::string_view why) {
  RETURN_IF_ERROR(SqliteStatement(database_,
                                  "UPDATE batch_entries SET state = ?, why = ? "
                                  "WHERE entry_id = ? AND state = 'waiting'",
                                  "end the entry")
                      .Bind(EntryStateWord(state))
                      .Bind(why)
                      .Bind(entry_id)
                      .Run());
  return sqlite3_changes(database_) == 1;
}

absl::StatusOr<int> BatchStore::CancelWaiting(const std::vector<std::string>& entry_ids,
                                              absl::string_view why) {
  int cancelled = 0;
  RETURN_IF_ERROR(InTransaction([&]() -> absl::Status {
    for (const std::string& entry_id : entry_ids) {
      ASSIGN_OR_RETURN(const bool waited, EndWaiting(entry_id, EntryState::kCancelled, why));
      cancelled += waited ? 1 : 0;
      const absl::Status noted =
          waited ? absl::OkStatus() : CallOffBegun(database_, "entry_id", entry_id, why);
      if (!noted.ok()) return noted;
    }
    return absl::OkStatus();
  }));
  return cancelled;
}

absl::Status BatchStore::SetWaiting(absl::string_view entry_id, absl::string_view why,
                                    int64_t not_before_ms, bool failed) {
  return SqliteStatement(database_,
                         "UPDATE batch_entries SET why = ?, not_before_ms = ?, "
                         "failures = failures + ? WHERE entry_id = ? AND state = 'waiting'",
                         "record why the entry waits")
      .Bind(why)
      .Bind(not_before_ms)
      .Bind(int64_t{failed})
      .Bind(entry_id)
      .Run();
}

absl::Status BatchStore::SetHost(absl::string_view batch_id, absl::string_view target_name,
                                 absl::string_view why, int64_t not_before_ms, int failures) {
  // A machine that is in order is not written again.
  return SqliteStatement(database_,
                         "UPDATE batch_hosts SET why = ?1, not_before_ms = ?2, failures = ?3 "
                         "WHERE batch_id = ?4 AND target_name = ?5 AND (?3 > 0 OR failures > 0)",
                         "record how the machine answered")
      .Bind(why)
      .Bind(not_before_ms)
      .Bind(int64_t{failures})
      .Bind(batch_id)
      .Bind(target_name)
      .Run();
}

}  // namespace gpuctl
