// How a batch leaves the list: a method of BatchStore.
#include "absl/strings/str_cat.h"
#include "client/batch/batch_store.h"
#include "client/batch/entry_is_live.h"
#include "common/base/status_macros.h"
#include "common/sqlite/sqlite.h"

namespace gpuctl {

absl::Status BatchStore::CheckForgettable(absl::string_view batch_id) {
  SqliteStatement there(database_, "SELECT 1 FROM batches WHERE batch_id = ?", "read the batch");
  ASSIGN_OR_RETURN(const bool found, there.Bind(batch_id).Step());
  if (!found) return absl::NotFoundError(absl::StrCat("batch ", batch_id, " is gone"));
  SqliteStatement open(database_,
                       "SELECT e.name FROM batch_entries e LEFT JOIN runs r USING (run_id) "
                       "WHERE e.batch_id = ? AND (e.state = 'waiting' OR " GPUCTL_ENTRY_IS_LIVE
                       ") ORDER BY e.number LIMIT 1",
                       "look for an entry that is not over");
  ASSIGN_OR_RETURN(const bool is_open, open.Bind(batch_id).Step());
  if (is_open) return absl::FailedPreconditionError(absl::StrCat(open.Text(0), " is not over"));
  SqliteStatement schedule(database_,
                           "SELECT 1 FROM batch_schedules WHERE batch_id = ? AND NOT ended",
                           "look whether its schedule goes on");
  ASSIGN_OR_RETURN(const bool goes_on, schedule.Bind(batch_id).Step());
  if (goes_on) return absl::FailedPreconditionError("its schedule goes on");
  // An entry names the others by their ids, which are in no other word.
  SqliteStatement other(
      database_,
      "SELECT o.name, e.name FROM batch_entries o CROSS JOIN batch_entries e "
      "ON e.batch_id = ?1 AND instr(o.after, e.entry_id) > 0 "
      "WHERE o.state = 'waiting' AND o.after != '[]' AND o.batch_id != ?1 LIMIT 1",
      "look for what comes after it");
  ASSIGN_OR_RETURN(const bool waited_for, other.Bind(batch_id).Step());
  if (!waited_for) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(other.Text(0), " waits, and comes after ", other.Text(1)));
}

absl::Status BatchStore::Forget(absl::string_view batch_id) {
  return InTransaction([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckForgettable(batch_id));
    // What is found by way of other rows goes before those.
    for (const char* statement : {"DELETE FROM batch_stop_wishes WHERE run_id IN "
                                  "(SELECT run_id FROM batch_attempts WHERE batch_id = ?)",
                                  "DELETE FROM batch_called_off WHERE run_id IN "
                                  "(SELECT run_id FROM batch_attempts WHERE batch_id = ?)",
                                  "DELETE FROM batch_entry_files WHERE entry_id IN "
                                  "(SELECT entry_id FROM batch_entries WHERE batch_id = ?)",
                                  "DELETE FROM batch_attempts WHERE batch_id = ?",
                                  "DELETE FROM batch_entries WHERE batch_id = ?",
                                  "DELETE FROM batch_hosts WHERE batch_id = ?",
                                  "DELETE FROM batch_schedules WHERE batch_id = ?",
                                  "DELETE FROM batches WHERE batch_id = ?"}) {
      SqliteStatement remove(database_, statement, "forget the batch");
      RETURN_IF_ERROR(remove.Bind(batch_id).Run());
    }
    return absl::OkStatus();
  });
}

}  // namespace gpuctl
