#include "client/runs/run_store.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/base/exit_codes.h"
#include "client/base/suggest.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/sqlite/sqlite.h"

namespace gpuctl {
namespace {

constexpr int kSchemaVersion = 2;
// Instead of a name, which cannot begin so.
constexpr absl::string_view kNewestRun = "@last";

constexpr char kSchema[] = R"sql(
CREATE TABLE runs (
  run_id TEXT PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  target TEXT NOT NULL,
  target_name TEXT NOT NULL,
  job_id TEXT NOT NULL UNIQUE,
  node_id TEXT NOT NULL,
  command TEXT NOT NULL,
  workdir TEXT NOT NULL,
  output_segment_bytes INTEGER NOT NULL,
  created_ms INTEGER NOT NULL,
  accepted_ms INTEGER NOT NULL,
  heard_ms INTEGER NOT NULL,
  end_state TEXT, exit_code INTEGER, job_code INTEGER, end_source TEXT, end_reason TEXT,
  ended_ms INTEGER, end_cause TEXT,
  step INTEGER NOT NULL DEFAULT -1, total_steps INTEGER NOT NULL DEFAULT -1, loss REAL,
  tags TEXT NOT NULL DEFAULT '',
  leader TEXT NOT NULL DEFAULT '', member_rank INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
-- Apart, because lists never need them and they are larger than all the rest.
CREATE TABLE specs (run_id TEXT PRIMARY KEY, spec TEXT NOT NULL, patterns TEXT NOT NULL,
  launch TEXT NOT NULL DEFAULT '', resumed_from TEXT NOT NULL DEFAULT '',
  note TEXT NOT NULL DEFAULT '', packages TEXT NOT NULL DEFAULT '',
  source TEXT NOT NULL DEFAULT '', diff TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX runs_created ON runs (created_ms);
CREATE INDEX runs_target ON runs (target_name, created_ms);
CREATE INDEX runs_leader ON runs (leader) WHERE leader <> '';
CREATE INDEX runs_live ON runs (created_ms) WHERE end_state IS NULL;
CREATE INDEX specs_resumed ON specs (resumed_from) WHERE resumed_from <> '';
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
PRAGMA user_version = 2;
)sql";

// Upgrade from version 1, whose runs cannot be resumed.
constexpr char kFromVersion1[] = R"sql(
ALTER TABLE specs ADD COLUMN launch TEXT NOT NULL DEFAULT '';
ALTER TABLE specs ADD COLUMN resumed_from TEXT NOT NULL DEFAULT '';
PRAGMA user_version = 2;
)sql";

// Query for a column that came later, without its own version. A gpuctl that does not know the
// column works with it there, and records ends without a cause.
constexpr char kHasEndCause[] = "SELECT 1 FROM pragma_table_info('runs') WHERE name = 'end_cause'";
constexpr char kHasPackages[] = "SELECT 1 FROM pragma_table_info('specs') WHERE name = 'packages'";
constexpr char kHasTags[] = "SELECT 1 FROM pragma_table_info('runs') WHERE name = 'tags'";
// Removes the end of a run; the conditions that it must fulfil follow.
constexpr char kUndoEnd[] =
    "UPDATE runs SET end_state = NULL, exit_code = NULL, job_code = NULL, end_source = NULL, "
    "end_reason = NULL, ended_ms = NULL, end_cause = NULL WHERE run_id = ? AND ";
constexpr char kAddEndCause[] = "ALTER TABLE runs ADD COLUMN end_cause TEXT";
constexpr char kAddLiveIndex[] =
    "CREATE INDEX IF NOT EXISTS runs_live ON runs (created_ms) WHERE end_state IS NULL";
constexpr char kAddResumedIndex[] =
    "CREATE INDEX IF NOT EXISTS specs_resumed ON specs (resumed_from) WHERE resumed_from <> ''";
constexpr char kHasLeader[] = "SELECT 1 FROM pragma_table_info('runs') WHERE name = 'leader'";
// Query for all additions without their own versions that are looked for one by one below.
constexpr char kIsCurrent[] =
    "SELECT 1 FROM pragma_table_info('runs') WHERE name = 'leader' AND EXISTS "
    "(SELECT 1 FROM sqlite_master WHERE name = 'specs_resumed') AND EXISTS "
    "(SELECT 1 FROM pragma_table_info('specs') WHERE name = 'packages')";
// A tag has a space before and behind it, so that one search finds it and no part of another.
constexpr char kAddTags[] = R"sql(
ALTER TABLE runs ADD COLUMN tags TEXT NOT NULL DEFAULT '';
ALTER TABLE specs ADD COLUMN note TEXT NOT NULL DEFAULT '';
ALTER TABLE specs ADD COLUMN source TEXT NOT NULL DEFAULT '';
ALTER TABLE specs ADD COLUMN diff TEXT NOT NULL DEFAULT '';
)sql";
constexpr char kAddPackages[] = "ALTER TABLE specs ADD COLUMN packages TEXT NOT NULL DEFAULT ''";
constexpr char kAddLeader[] = R"sql(
ALTER TABLE runs ADD COLUMN leader TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN member_rank INTEGER NOT NULL DEFAULT 0;
CREATE INDEX IF NOT EXISTS runs_leader ON runs (leader) WHERE leader <> '';
)sql";
constexpr size_t kMostTags = 32;
constexpr size_t kLongestTag = 64;
constexpr size_t kLongestNote = 4096;

// Columns in the order in which ReadRow reads them.
#define GPUCTL_RUN_COLUMNS                                                                      \
  "run_id, name, target, job_id, node_id, command, workdir, output_segment_bytes, created_ms, " \
  "accepted_ms, heard_ms, end_state, exit_code, job_code, end_source, end_reason, ended_ms, "   \
  "end_cause, step, total_steps, loss, tags, leader, member_rank"
constexpr int kRunColumns = 24;

RunEnd ReadEnd(SqliteStatement& statement, int column) {
  RunEnd end;
  end.state = StateOfWord(statement.Text(column++));
  end.exit_code = static_cast<int>(statement.Int(column++));
  end.job_code = static_cast<int>(statement.Int(column++));
  end.source = SourceOfWord(statement.Text(column++));
  end.reason = statement.Text(column++);
  end.ended_ms = statement.Int(column++);
  end.cause = statement.IsNull(column) ? CauseOfOldEnd(end) : CauseOfWord(statement.Text(column));
  return end;
}

std::string TargetToJson(const NodeTarget& target) {
  const nlohmann::json json = {{"provider", target.provider},
                               {"name", target.name},
                               {"host", target.host},
                               {"port", target.port},
                               {"user", target.user},
                               {"identity_files", target.identity_files},
                               {"proxy_command", target.proxy_command},
                               {"known_hosts", target.host_key.known_hosts},
                               {"host_key_alias", target.host_key.alias},
                               {"strict_host_key", target.host_key.strict},
                               {"given_host_key", target.given_host_key},
                               {"identities_only", target.identities_only},
                               {"root", target.root}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The parts of "train-3".
struct NumberedName {
  std::string base;
  int64_t number = 0;
};

// Returns nothing for a name without a number.
std::optional<NumberedName> SplitName(absl::string_view name) {
  const size_t dash = name.rfind('-');
  NumberedName parts;
  if (dash == name.npos || !absl::SimpleAtoi(name.substr(dash + 1), &parts.number)) {
    return std::nullopt;
  }
  parts.base = std::string(name.substr(0, dash));
  return parts;
}

std::string BaseOf(const std::string& name) {
  const std::optional<NumberedName> parts = SplitName(name);
  return parts.has_value() ? parts->base : name;
}

std::string StringField(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

std::vector<std::string> StringsField(const nlohmann::json& json, const char* key) {
  std::vector<std::string> strings;
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array()) return strings;
  for (const nlohmann::json& element : *found) {
    if (element.is_string()) strings.push_back(element.get<std::string>());
  }
  return strings;
}

bool BoolField(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_boolean() && found->get<bool>();
}

NodeTarget TargetFromJson(const std::string& text) {
  NodeTarget target;
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return target;
  target.provider = StringField(json, "provider");
  target.name = StringField(json, "name");
  target.host = StringField(json, "host");
  if (json.contains("port") && json["port"].is_number_integer()) target.port = json["port"];
  target.user = StringField(json, "user");
  target.identity_files = StringsField(json, "identity_files");
  target.proxy_command = StringField(json, "proxy_command");
  target.host_key.known_hosts = StringsField(json, "known_hosts");
  target.host_key.alias = StringField(json, "host_key_alias");
  target.host_key.strict = BoolField(json, "strict_host_key");
  target.given_host_key = StringField(json, "given_host_key");
  target.identities_only = BoolField(json, "identities_only");
  target.root = StringField(json, "root");
  return target;
}

// The last parsed target. Most runs share one, and parsing its JSON once makes a long list fast.
struct TargetCache {
  std::string text;
  NodeTarget target;
};

std::vector<std::string> SplitTags(absl::string_view text) {
  return absl::StrSplit(text, ' ', absl::SkipEmpty());
}

std::string JoinTags(const std::vector<std::string>& tags) {
  return tags.empty() ? "" : absl::StrCat(" ", absl::StrJoin(tags, " "), " ");
}

RunRow ReadRow(SqliteStatement& statement, TargetCache& cache) {
  RunRow row;
  int column = 0;
  row.run_id = statement.Text(column++);
  row.name = statement.Text(column++);
  if (std::string text = statement.Text(column++); text != cache.text) {
    cache.target = TargetFromJson(text);
    cache.text = std::move(text);
  }
  row.target = cache.target;
  row.job_id = statement.Text(column++);
  row.node_id = statement.Text(column++);
  row.command = statement.Text(column++);
  row.workdir = statement.Text(column++);
  row.output_segment_bytes = statement.Int(column++);
  row.created_ms = statement.Int(column++);
  row.accepted_ms = statement.Int(column++);
  row.heard_ms = statement.Int(column++);
  if (!statement.IsNull(column)) row.end = ReadEnd(statement, column);
  column += 7;
  row.step = statement.Int(column++);
  row.total_steps = statement.Int(column++);
  if (!statement.IsNull(column)) row.loss = statement.Double(column);
  row.tags = SplitTags(statement.Text(++column));
  row.leader = statement.Text(++column);
  row.rank = static_cast<int>(statement.Int(++column));
  return row;
}

}  // namespace

absl::Status CheckTag(absl::string_view tag) {
  const bool plain =
      !tag.empty() && tag[0] != '-' && std::all_of(tag.begin(), tag.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
               absl::StrContains("._-:/=@+", c);
      });
  if (plain && tag.size() <= kLongestTag) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", tag.substr(0, kLongestTag), "\" cannot be a tag: a tag is one word of 1 to ",
      kLongestTag, " letters, digits and . _ - : / = @ +"));
}

absl::Status CheckTags(const std::vector<std::string>& tags) {
  for (const std::string& tag : tags) RETURN_IF_ERROR(CheckTag(tag));
  if (tags.size() <= kMostTags) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a run has at most ", kMostTags, " tags, and it would have ", tags.size()));
}

absl::Status CheckNote(absl::string_view note) {
  if (note.size() <= kLongestNote) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a note has at most ", kLongestNote, " bytes, and this one has ", note.size()));
}

absl::StatusOr<std::unique_ptr<RunStore>> RunStore::Open(const std::string& path) {
  const std::string doing = absl::StrCat("open the list of runs ", path);
  ASSIGN_OR_RETURN(sqlite3* const database, OpenSqlite(path, doing));
  std::unique_ptr<RunStore> store(new RunStore(database));
  RETURN_IF_ERROR(Annotate(store->Migrate(), doing));
  return store;
}

absl::StatusOr<std::unique_ptr<RunStore>> RunStore::OpenCopy(const std::string& path) {
  const std::string doing = absl::StrCat("copy the list of runs ", path);
  ASSIGN_OR_RETURN(sqlite3* const database, CopySqlite(path, doing));
  std::unique_ptr<RunStore> store(new RunStore(database));
  RETURN_IF_ERROR(Annotate(store->Migrate(), doing));
  return store;
}

RunStore::~RunStore() { sqlite3_close(database_); }

absl::Status RunStore::Migrate() {
  ASSIGN_OR_RETURN(int64_t found, EnsureSchema(database_, kSchema));
  ASSIGN_OR_RETURN(const bool has_additions, Finds(kIsCurrent));
  if (found == 1 || (found == kSchemaVersion && !has_additions)) {
    RETURN_IF_ERROR(SqliteExecute(database_, "BEGIN IMMEDIATE", "lock"));
    const absl::Status status = Upgrade();
    RETURN_IF_ERROR(SqliteExecute(database_, status.ok() ? "COMMIT" : "ROLLBACK", "commit"));
    RETURN_IF_ERROR(status);
    ASSIGN_OR_RETURN(found, EnsureSchema(database_, kSchema));
  }
  if (found == kSchemaVersion) return absl::OkStatus();
  return WithHint(absl::FailedPreconditionError(absl::StrCat(
                      "its schema is version ", found, ", this gpuctl knows ", kSchemaVersion)),
                  "use the newer gpuctl that wrote it, or set GPUCTL_STATE_DIR to another place");
}

absl::StatusOr<bool> RunStore::Finds(const char* query) {
  return SqliteStatement(database_, query, "read the tables").Step();
}

absl::Status RunStore::Upgrade() {
  constexpr char kDoing[] = "bring the tables up to date";
  // Another process may have upgraded in part meanwhile.
  ASSIGN_OR_RETURN(const int64_t found, EnsureSchema(database_, kSchema));
  if (found == 1) RETURN_IF_ERROR(SqliteExecute(database_, kFromVersion1, kDoing));
  ASSIGN_OR_RETURN(const bool has_causes, Finds(kHasEndCause));
  if (!has_causes) RETURN_IF_ERROR(SqliteExecute(database_, kAddEndCause, kDoing));
  RETURN_IF_ERROR(SqliteExecute(database_, kAddLiveIndex, kDoing));
  ASSIGN_OR_RETURN(const bool has_tags, Finds(kHasTags));
  if (!has_tags) RETURN_IF_ERROR(SqliteExecute(database_, kAddTags, kDoing));
  ASSIGN_OR_RETURN(const bool has_packages, Finds(kHasPackages));
  if (!has_packages) RETURN_IF_ERROR(SqliteExecute(database_, kAddPackages, kDoing));
  RETURN_IF_ERROR(SqliteExecute(database_, kAddResumedIndex, kDoing));
  ASSIGN_OR_RETURN(const bool has_leader, Finds(kHasLeader));
  return has_leader ? absl::OkStatus() : SqliteExecute(database_, kAddLeader, kDoing);
}

absl::StatusOr<std::string> RunStore::ClientId() {
  SqliteStatement insert(database_,
                         "INSERT OR IGNORE INTO meta (key, value) VALUES ('client_id', ?)",
                         "store the client id");
  SqliteStatement select(database_, "SELECT value FROM meta WHERE key = 'client_id'",
                         "read the client id");
  ASSIGN_OR_RETURN(bool found, select.Step());
  if (found) return select.Text(0);
  RETURN_IF_ERROR(insert.Bind(absl::StrCat("c-", RandomHex(6))).Run());
  SqliteStatement again(database_, "SELECT value FROM meta WHERE key = 'client_id'",
                        "read the client id");
  ASSIGN_OR_RETURN(found, again.Step());
  return found ? again.Text(0) : "";
}

absl::StatusOr<int64_t> RunStore::NextNumber(const std::string& base) {
  // '.' is the character after '-': these are the names that begin with "BASE-".
  SqliteStatement select(database_, "SELECT name FROM runs WHERE name > ?1 AND name < ?2",
                         "look up the runs of that name");
  select.Bind(absl::StrCat(base, "-")).Bind(absl::StrCat(base, "."));
  int64_t newest = 0;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return newest + 1;
    const std::optional<NumberedName> name = SplitName(select.Text(0));
    if (name.has_value() && name->base == base) newest = std::max(newest, name->number);
  }
}

absl::Status RunStore::Insert(RunRow& row) {
  const std::string wanted = row.name;
  const nlohmann::json patterns = {{"checkpoints", row.checkpoint_patterns},
                                   {"artifacts", row.artifact_patterns},
                                   {"ports", row.ports}};
  // This comes first, so that a run never exists without it.
  RETURN_IF_ERROR(SqliteStatement(database_,
                                  "INSERT INTO specs (run_id, spec, patterns, launch, "
                                  "resumed_from, note, source, diff) "
                                  "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                                  "record the run's spec")
                      .Bind(row.run_id)
                      .Bind(row.spec_json)
                      .Bind(patterns.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))
                      .Bind(row.launch_json)
                      .Bind(row.resumed_from)
                      .Bind(row.note)
                      .Bind(row.source_json)
                      .Bind(row.source_diff)
                      .Run());
  const bool numbered = !row.leader.empty() || SplitName(wanted).has_value();
  for (bool first = true;; first = false) {
    ASSIGN_OR_RETURN(const int64_t next, NextNumber(wanted));
    // A name that ends in a number is the first of its runs.
    row.name = numbered && first ? wanted
                                 : absl::StrCat(wanted, "-", std::max(next, int64_t{numbered} + 1));
    SqliteStatement insert(
        database_,
        "INSERT INTO runs (run_id, name, target, job_id, node_id, command, "
        "workdir, output_segment_bytes, created_ms, accepted_ms, heard_ms, target_name, tags, "
        "leader, member_rank) "
        "SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15 "
        "WHERE NOT EXISTS (SELECT 1 FROM runs WHERE name = ?2)",
        absl::StrCat("record run ", row.name));
    insert.Bind(row.run_id).Bind(row.name).Bind(TargetToJson(row.target)).Bind(row.job_id);
    insert.Bind(row.node_id).Bind(row.command).Bind(row.workdir).Bind(row.output_segment_bytes);
    insert.Bind(row.created_ms).Bind(row.accepted_ms).Bind(row.heard_ms);
    insert.Bind(row.target.name).Bind(JoinTags(row.tags)).Bind(row.leader);
    insert.Bind(static_cast<int64_t>(row.rank));
    RETURN_IF_ERROR(insert.Run());
    // Another process may have taken the number.
    if (sqlite3_changes(database_) == 1) return absl::OkStatus();
  }
}

absl::Status RunStore::InsertAll(RunRow& run, const std::vector<RunRow*>& members) {
  RETURN_IF_ERROR(SqliteExecute(database_, "BEGIN IMMEDIATE", "lock the list of runs"));
  absl::Status inserted = Insert(run);
  for (RunRow* const member : members) {
    if (!inserted.ok()) break;
    member->name = absl::StrCat(run.name, ".node", member->rank);
    inserted = Insert(*member);
  }
  if (inserted.ok()) inserted = SqliteExecute(database_, "COMMIT", "record the run");
  if (!inserted.ok()) (void)SqliteExecute(database_, "ROLLBACK", "undo");
  return inserted;
}

absl::Status RunStore::SetNode(absl::string_view run_id, absl::string_view node_id) {
  RETURN_IF_ERROR(
      SqliteStatement(database_, "UPDATE runs SET node_id = ? WHERE run_id = ?", "record the node")
          .Bind(node_id)
          .Bind(run_id)
          .Run());
  if (sqlite3_changes(database_) == 1) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "record the node: the run was removed from the list meanwhile");
}

absl::StatusOr<std::string> RunStore::LastNodeOf(absl::string_view target_name) {
  SqliteStatement select(database_,
                         "SELECT node_id FROM runs WHERE target_name = ? AND accepted_ms > 0 "
                         "ORDER BY created_ms DESC LIMIT 1",
                         "look up the node");
  ASSIGN_OR_RETURN(const bool found, select.Bind(target_name).Step());
  return found ? select.Text(0) : "";
}

absl::Status RunStore::SetAccepted(absl::string_view run_id, absl::string_view node_id,
                                   int64_t now_ms) {
  // Another gpuctl may have taken the launch for dead before the node accepted the job.
  const std::string undo = absl::StrCat(kUndoEnd, "end_state = ? AND end_source = ?");
  RETURN_IF_ERROR(SqliteStatement(database_, undo.c_str(), "undo the run's end")
                      .Bind(run_id)
                      .Bind(StateWord(gpuctl::v1::JOB_STATE_UNSPECIFIED))
                      .Bind(SourceWord(EndSource::kGpuctl))
                      .Run());
  return SqliteStatement(database_,
                         "UPDATE runs SET node_id = ?1, heard_ms = ?2, accepted_ms = "
                         "CASE accepted_ms WHEN 0 THEN ?2 ELSE accepted_ms END WHERE run_id = ?3",
                         "record the job's acceptance")
      .Bind(node_id)
      .Bind(now_ms)
      .Bind(run_id)
      .Run();
}

absl::Status RunStore::SetHeard(absl::string_view run_id, int64_t now_ms) {
  return SqliteStatement(database_, "UPDATE runs SET heard_ms = ?1 WHERE run_id = ?2",
                         "record when the node was heard")
      .Bind(now_ms)
      .Bind(run_id)
      .Run();
}

absl::Status RunStore::SetEnd(absl::string_view run_id, const RunEnd& end) {
  return SqliteStatement(database_,
                         "UPDATE runs SET end_state = ?1, exit_code = ?2, job_code = ?3, "
                         "end_source = ?4, end_reason = ?5, ended_ms = ?6, end_cause = ?7 "
                         "WHERE run_id = ?8 AND end_state IS NULL AND (?1 <> ?9 OR "
                         "accepted_ms = 0)",
                         "record the run's end")
      .Bind(StateWord(end.state))
      .Bind(end.exit_code)
      .Bind(end.job_code)
      .Bind(SourceWord(end.source))
      .Bind(end.reason)
      .Bind(end.ended_ms)
      .Bind(CauseWord(end.cause))
      .Bind(run_id)
      .Bind(StateWord(gpuctl::v1::JOB_STATE_UNSPECIFIED))
      .Run();
}

absl::Status RunStore::UndoEnd(absl::string_view run_id, int64_t ended_ms) {
  const std::string undo = absl::StrCat(kUndoEnd, "ended_ms = ? AND end_source = ?");
  return SqliteStatement(database_, undo.c_str(), "undo the run's end")
      .Bind(run_id)
      .Bind(ended_ms)
      .Bind(SourceWord(EndSource::kGpuctl))
      .Run();
}

absl::Status RunStore::SetProgress(absl::string_view run_id, int64_t step, int64_t total_steps,
                                   std::optional<double> loss) {
  SqliteStatement update(database_,
                         "UPDATE runs SET step = ?, total_steps = ?, loss = ? WHERE run_id = ?",
                         "record the run's progress");
  update.Bind(step).Bind(total_steps);
  if (loss.has_value()) {
    update.BindDouble(*loss);
  } else {
    update.BindNull();
  }
  return update.Bind(run_id).Run();
}

absl::StatusOr<std::vector<std::string>> RunStore::ReadTags(absl::string_view run_id) {
  SqliteStatement select(database_, "SELECT tags FROM runs WHERE run_id = ?",
                         "read the run's tags");
  ASSIGN_OR_RETURN(const bool found, select.Bind(run_id).Step());
  if (!found) return absl::NotFoundError(absl::StrCat("run ", run_id, " is gone"));
  return SplitTags(select.Text(0));
}

absl::StatusOr<std::vector<std::string>> RunStore::ChangeTagsLocked(
    absl::string_view run_id, const std::vector<std::string>& add,
    const std::vector<std::string>& remove) {
  ASSIGN_OR_RETURN(std::vector<std::string> tags, ReadTags(run_id));
  tags.insert(tags.end(), add.begin(), add.end());
  std::sort(tags.begin(), tags.end());
  tags.erase(std::unique(tags.begin(), tags.end()), tags.end());
  const auto unwanted = [&remove](const std::string& tag) {
    return std::find(remove.begin(), remove.end(), tag) != remove.end();
  };
  tags.erase(std::remove_if(tags.begin(), tags.end(), unwanted), tags.end());
  RETURN_IF_ERROR(CheckTags(tags));
  RETURN_IF_ERROR(
      SqliteStatement(database_, "UPDATE runs SET tags = ? WHERE run_id = ?", "record the tags")
          .Bind(JoinTags(tags))
          .Bind(run_id)
          .Run());
  return tags;
}

absl::StatusOr<std::vector<std::string>> RunStore::ChangeTags(
    absl::string_view run_id, const std::vector<std::string>& add,
    const std::vector<std::string>& remove) {
  // Two processes that each add a tag both keep theirs.
  RETURN_IF_ERROR(SqliteExecute(database_, "BEGIN IMMEDIATE", "lock"));
  absl::StatusOr<std::vector<std::string>> tags = ChangeTagsLocked(run_id, add, remove);
  RETURN_IF_ERROR(SqliteExecute(database_, tags.ok() ? "COMMIT" : "ROLLBACK", "commit"));
  return tags;
}

absl::Status RunStore::SetNote(absl::string_view run_id, absl::string_view note) {
  RETURN_IF_ERROR(CheckNote(note));
  return SqliteStatement(database_, "UPDATE specs SET note = ? WHERE run_id = ?", "record the note")
      .Bind(note)
      .Bind(run_id)
      .Run();
}

absl::Status RunStore::SetLaunch(absl::string_view run_id, absl::string_view launch_json) {
  return SqliteStatement(database_, "UPDATE specs SET launch = ? WHERE run_id = ?",
                         "record the changed launch")
      .Bind(launch_json)
      .Bind(run_id)
      .Run();
}

absl::Status RunStore::SetPackages(absl::string_view run_id, absl::string_view packages) {
  return SqliteStatement(database_, "UPDATE specs SET packages = ? WHERE run_id = ?",
                         "record the packages")
      .Bind(packages)
      .Bind(run_id)
      .Run();
}

absl::Status RunStore::Delete(absl::string_view run_id) {
  for (const char* sql :
       {"DELETE FROM runs WHERE run_id = ?", "DELETE FROM specs WHERE run_id = ?"}) {
    RETURN_IF_ERROR(SqliteStatement(database_, sql, "remove the run").Bind(run_id).Run());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<RunRow>> RunStore::List(bool live_only, int limit) {
  RunFilter filter;
  filter.live_only = live_only;
  filter.limit = limit;
  return List(filter);
}

absl::StatusOr<std::vector<RunRow>> RunStore::List(const RunFilter& filter) {
  const bool by_name = !filter.prefix.empty() && !filter.live_only;
  // `end_state IS NULL` stands in the text, so that SQLite takes its index of live runs.
  const std::string query =
      absl::StrCat("SELECT " GPUCTL_RUN_COLUMNS " FROM runs WHERE ",
                   filter.members ? "leader <> ''" : "leader = ''",
                   " AND created_ms >= ? AND instr(tags, ?) > 0",
                   filter.live_only ? " AND end_state IS NULL" : "",
                   by_name ? " AND name >= ? AND name < ?" : "",
                   filter.target_name.empty() ? "" : " AND target_name = ?",
                   filter.ended_since_ms > 0 ? " AND (end_state IS NULL OR ended_ms >= ?)" : "",
                   " ORDER BY created_ms DESC, run_id LIMIT ?");
  SqliteStatement select(database_, query.c_str(), "list the runs");
  // Every text contains the empty one, at 1.
  select.Bind(filter.since_ms > 0 ? filter.since_ms : std::numeric_limits<int64_t>::min())
      .Bind(filter.tag.empty() ? "" : absl::StrCat(" ", filter.tag, " "));
  // Names are compared byte by byte, and none has this byte.
  if (by_name) select.Bind(filter.prefix).Bind(absl::StrCat(filter.prefix, "\xff"));
  if (!filter.target_name.empty()) select.Bind(filter.target_name);
  if (filter.ended_since_ms > 0) select.Bind(filter.ended_since_ms);
  select.Bind(filter.limit > 0 && (by_name || filter.prefix.empty()) ? filter.limit : -1);
  std::vector<RunRow> rows;
  TargetCache cache;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return rows;
    RunRow one = ReadRow(select, cache);
    if (!absl::StartsWith(one.name, filter.prefix)) continue;
    rows.push_back(std::move(one));
    if (filter.limit > 0 && rows.size() >= static_cast<size_t>(filter.limit)) return rows;
  }
}

absl::StatusOr<std::vector<std::string>> RunStore::MemberIds(absl::string_view run_id) {
  SqliteStatement select(database_,
                         "SELECT run_id FROM runs WHERE leader = ? AND leader <> '' "
                         "ORDER BY member_rank",
                         "look up the run's members");
  select.Bind(run_id);
  std::vector<std::string> ids;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) break;
    ids.push_back(select.Text(0));
  }
  return ids;
}

absl::StatusOr<std::map<std::string, std::vector<std::string>>> RunStore::AllMemberIds() {
  SqliteStatement select(database_,
                         "SELECT leader, run_id FROM runs WHERE leader <> '' "
                         "ORDER BY leader, member_rank",
                         "look up the members of runs");
  std::map<std::string, std::vector<std::string>> ids;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return ids;
    ids[select.Text(0)].push_back(select.Text(1));
  }
}

absl::StatusOr<std::vector<RunRow>> RunStore::Members(absl::string_view run_id) {
  ASSIGN_OR_RETURN(const std::vector<std::string> ids, MemberIds(run_id));
  std::vector<RunRow> members;
  for (const std::string& id : ids) {
    ASSIGN_OR_RETURN(members.emplace_back(), Get(id));
  }
  return members;
}

absl::StatusOr<std::map<std::string, RunRow>> RunStore::Find(const std::set<std::string>& run_ids) {
  std::map<std::string, RunRow> rows;
  TargetCache cache;
  for (const std::string& run_id : run_ids) {
    SqliteStatement select(database_, "SELECT " GPUCTL_RUN_COLUMNS " FROM runs WHERE run_id = ?",
                           "read the run");
    ASSIGN_OR_RETURN(const bool found, select.Bind(run_id).Step());
    if (found) rows.emplace(run_id, ReadRow(select, cache));
  }
  return rows;
}

absl::StatusOr<int64_t> RunStore::Count() {
  SqliteStatement select(database_, "SELECT COUNT(*) FROM runs WHERE leader = ''",
                         "count the runs");
  ASSIGN_OR_RETURN(const bool found, select.Step());
  return found ? select.Int(0) : 0;
}

absl::StatusOr<std::vector<std::string>> RunStore::SuccessorsOf(absl::string_view run_id) {
  SqliteStatement select(database_,
                         "SELECT name FROM specs JOIN runs USING (run_id) "
                         "WHERE resumed_from <> '' AND resumed_from = ? AND accepted_ms > 0 "
                         "ORDER BY created_ms DESC",
                         "look up resumed runs");
  select.Bind(run_id);
  std::vector<std::string> names;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return names;
    names.push_back(select.Text(0));
  }
}

absl::StatusOr<std::map<std::string, std::string>> RunStore::Resumptions() {
  SqliteStatement select(database_,
                         "SELECT resumed_from, run_id FROM specs JOIN runs USING (run_id) "
                         "WHERE resumed_from <> '' ORDER BY created_ms",
                         "look up resumed runs");
  std::map<std::string, std::string> resumptions;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return resumptions;
    resumptions[select.Text(0)] = select.Text(1);
  }
}

absl::StatusOr<std::string> RunStore::SourceDiff(absl::string_view run_id) {
  SqliteStatement select(database_, "SELECT diff FROM specs WHERE run_id = ?",
                         "read the run's diff");
  ASSIGN_OR_RETURN(const bool found, select.Bind(run_id).Step());
  return found ? select.Text(0) : "";
}

absl::StatusOr<std::string> RunStore::Resolve(absl::string_view reference) {
  SqliteStatement exact(database_,
                        reference == kNewestRun
                            ? "SELECT run_id FROM runs WHERE ?1 <> '' AND leader = '' "
                              "ORDER BY created_ms DESC, run_id LIMIT 1"
                            : "SELECT run_id FROM runs WHERE run_id = ?1 "
                              "UNION ALL SELECT run_id FROM runs WHERE job_id = ?1 "
                              "UNION ALL SELECT run_id FROM runs WHERE name = ?1 LIMIT 1",
                        "look up the run");
  ASSIGN_OR_RETURN(const bool is_exact, exact.Bind(reference).Step());
  if (is_exact) return exact.Text(0);
  if (reference.empty() || reference == kNewestRun) return UnknownName(reference);
  // No name and no id has the last byte, so these are those that begin so.
  SqliteStatement select(database_,
                         "SELECT run_id, name, leader FROM runs WHERE run_id IN ("
                         "SELECT run_id FROM runs WHERE name >= ?1 AND name < ?2 UNION "
                         "SELECT run_id FROM runs WHERE run_id >= ?1 AND run_id < ?2) "
                         "ORDER BY created_ms DESC, run_id",
                         "look up the run");
  select.Bind(reference).Bind(absl::StrCat(reference, "\xff"));
  std::vector<std::string> ids, names;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) break;
    const std::string run_id = select.Text(0), name = select.Text(1);
    if (const bool member = !select.Text(2).empty(); member) continue;
    if (reference == BaseOf(name)) return run_id;  // the newest of this name
    ids.push_back(run_id);
    names.push_back(name);
  }
  if (ids.empty()) return UnknownName(reference);
  const bool one_name = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return BaseOf(name) == BaseOf(names[0]) && absl::StartsWith(BaseOf(name), reference);
  });
  if (ids.size() == 1 || one_name) return ids[0];
  const size_t shown = std::min<size_t>(names.size(), 8);
  return WithExitCode(
      WithHint(absl::FailedPreconditionError(absl::StrCat(
                   "run \"", reference, "\" is ambiguous: it begins ",
                   absl::StrJoin(names.begin(), names.begin() + static_cast<int64_t>(shown), ", "),
                   names.size() > shown ? " and others" : "")),
               "write more of the name"),
      kExitUsage);
}

absl::Status RunStore::UnknownName(absl::string_view reference) {
  SqliteStatement select(database_, "SELECT name FROM runs ORDER BY created_ms DESC",
                         "look up the run");
  std::vector<std::string> names;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) break;
    names.push_back(select.Text(0));
  }
  std::string hint = unknown_hint_ ? unknown_hint_(reference) : "";
  if (hint.empty()) {
    hint = names.empty() ? "start one: gpuctl launch -- COMMAND" : "gpuctl ps -a lists them";
  }
  return WithExitCode(WithHint(absl::NotFoundError(absl::StrCat("no run \"", reference, "\"",
                                                                DidYouMeanOneOf(reference, names))),
                               hint),
                      kExitUsage);
}

absl::StatusOr<RunRow> RunStore::Get(absl::string_view reference) {
  ASSIGN_OR_RETURN(const std::string run_id, Resolve(reference));
  SqliteStatement select(
      database_,
      "SELECT " GPUCTL_RUN_COLUMNS
      ", spec, patterns, launch, resumed_from, note, source, packages FROM runs JOIN "
      "specs USING (run_id) WHERE run_id = ?",
      "read the run");
  ASSIGN_OR_RETURN(const bool found, select.Bind(run_id).Step());
  if (!found) return absl::NotFoundError(absl::StrCat("run ", run_id, " is gone"));
  TargetCache cache;
  RunRow row = ReadRow(select, cache);
  row.spec_json = select.Text(kRunColumns);
  const nlohmann::json patterns =
      nlohmann::json::parse(select.Text(kRunColumns + 1), nullptr, false);
  if (patterns.is_object()) {
    row.checkpoint_patterns = StringsField(patterns, "checkpoints");
    row.artifact_patterns = StringsField(patterns, "artifacts");
    row.ports = StringsField(patterns, "ports");
  }
  row.launch_json = select.Text(kRunColumns + 2);
  row.resumed_from = select.Text(kRunColumns + 3);
  row.note = select.Text(kRunColumns + 4);
  row.source_json = select.Text(kRunColumns + 5);
  row.packages = select.Text(kRunColumns + 6);
  return row;
}

}  // namespace gpuctl
