// Batches that get an entry at each time of a schedule: the methods of BatchStore for them.
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/batch/batch_store.h"
#include "client/batch/entry_is_live.h"
#include "common/base/status_macros.h"
#include "common/sqlite/sqlite.h"

namespace gpuctl {
namespace {

void BindSchedule(SqliteStatement& statement, const Schedule& schedule) {
  statement.Bind(schedule.cron).Bind(schedule.launch_json).Bind(int64_t{schedule.overlap});
  statement.Bind(int64_t{schedule.priority}).Bind(int64_t{schedule.resumes});
  statement.Bind(int64_t{schedule.gpus}).Bind(schedule.next_ms);
}

}  // namespace

absl::Status BatchStore::InsertScheduled(const Batch& batch, const Schedule& schedule) {
  return InTransaction([&]() -> absl::Status {
    RETURN_IF_ERROR(InsertLocked(batch, {}));
    SqliteStatement insert(
        database_,
        "INSERT INTO batch_schedules (batch_id, cron, launch, overlap, priority, "
        "resumes, gpus, next_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        "record the schedule");
    insert.Bind(batch.batch_id);
    BindSchedule(insert, schedule);
    return insert.Run();
  });
}

absl::Status BatchStore::ReplaceSchedule(const Batch& batch, const Schedule& schedule) {
  return InTransaction([&]() -> absl::Status {
    SqliteStatement update(database_,
                           "UPDATE batch_schedules SET cron = ?, launch = ?, overlap = ?, "
                           "priority = ?, resumes = ?, gpus = ?, next_ms = ?, ended = 0, why = '' "
                           "WHERE batch_id = ?",
                           "replace the schedule");
    BindSchedule(update, schedule);
    RETURN_IF_ERROR(update.Bind(batch.batch_id).Run());
    return SqliteStatement(database_, "UPDATE batches SET digest = ? WHERE batch_id = ?",
                           "replace the schedule")
        .Bind(batch.digest)
        .Bind(batch.batch_id)
        .Run();
  });
}

absl::StatusOr<std::map<std::string, Schedule>> BatchStore::Schedules() {
  SqliteStatement select(
      database_,
      "SELECT batch_id, cron, launch, overlap, priority, resumes, gpus, next_ms, "
      "last_ms, ended, why FROM batch_schedules",
      "read the schedules");
  std::map<std::string, Schedule> schedules;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return schedules;
    Schedule schedule;
    schedule.batch_id = select.Text(0);
    schedule.cron = select.Text(1);
    schedule.launch_json = select.Text(2);
    schedule.overlap = select.Int(3) != 0;
    schedule.priority = static_cast<int>(select.Int(4));
    schedule.resumes = static_cast<int>(select.Int(5));
    schedule.gpus = static_cast<int>(select.Int(6));
    schedule.next_ms = select.Int(7);
    schedule.last_ms = select.Int(8);
    schedule.ended = select.Int(9) != 0;
    schedule.why = select.Text(10);
    std::string id = schedule.batch_id;
    schedules.emplace(std::move(id), std::move(schedule));
  }
}

absl::StatusOr<bool> BatchStore::MakeDue(
    const Schedule& seen, const std::string& batch_name, int64_t next_ms,
    const std::function<absl::StatusOr<Entry>(const std::string& name)>& make) {
  bool made = false;
  const absl::Status done = InTransaction([&]() -> absl::Status {
    std::string why;
    if (!seen.overlap) {
      SqliteStatement live(database_,
                           "SELECT e.name FROM batch_entries e LEFT JOIN runs r USING (run_id) "
                           "WHERE e.batch_id = ? AND (e.state = 'waiting' OR " GPUCTL_ENTRY_IS_LIVE
                           ") LIMIT 1",
                           "look for a live entry");
      ASSIGN_OR_RETURN(const bool found, live.Bind(seen.batch_id).Step());
      if (found) why = absl::StrCat(live.Text(0), " was not over");
    }
    SqliteStatement take(database_,
                         "UPDATE batch_schedules SET next_ms = ?, last_ms = ?, why = ? "
                         "WHERE batch_id = ? AND next_ms = ? AND NOT ended",
                         "take a time of the schedule");
    take.Bind(next_ms).Bind(seen.next_ms).Bind(why).Bind(seen.batch_id).Bind(seen.next_ms);
    RETURN_IF_ERROR(take.Run());
    // Another process has taken it.
    if (sqlite3_changes(database_) != 1 || !why.empty()) return absl::OkStatus();
    SqliteStatement last(database_,
                         "SELECT COALESCE(MAX(number), 0) FROM batch_entries WHERE batch_id = ?",
                         "number the entry");
    ASSIGN_OR_RETURN(const bool counted, last.Bind(seen.batch_id).Step());
    int number = counted ? static_cast<int>(last.Int(0)) : 0;
    std::string name;
    for (bool taken = true; taken;) {
      name = absl::StrCat(batch_name, "-", ++number);
      SqliteStatement other(database_, "SELECT 1 FROM batch_entries WHERE name = ?",
                            "name the entry");
      ASSIGN_OR_RETURN(taken, other.Bind(name).Step());
    }
    ASSIGN_OR_RETURN(Entry entry, make(name));
    entry.number = number;
    entry.name = name;
    RETURN_IF_ERROR(InsertEntries(seen.batch_id, {entry}));
    made = true;
    return absl::OkStatus();
  });
  RETURN_IF_ERROR(done);
  return made;
}

absl::StatusOr<bool> BatchStore::EndSchedule(absl::string_view batch_id) {
  RETURN_IF_ERROR(SqliteStatement(database_,
                                  "UPDATE batch_schedules SET ended = 1 WHERE batch_id = ? AND NOT "
                                  "ended",
                                  "end the schedule")
                      .Bind(batch_id)
                      .Run());
  return sqlite3_changes(database_) == 1;
}

}  // namespace gpuctl
