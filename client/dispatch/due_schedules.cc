#include "client/dispatch/due_schedules.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/base/cron.h"
#include "client/batch/entry_spec.h"
#include "client/spec/launch_record.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

absl::StatusOr<Entry> EntryOf(const Schedule& schedule, const std::string& name) {
  ASSIGN_OR_RETURN(LaunchRecord record, ParseLaunchRecord(schedule.launch_json));
  ASSIGN_OR_RETURN(record, WithParameters(std::move(record), name, {}));
  Entry entry;
  entry.entry_id = absl::StrCat("e-", RandomHex(6));
  entry.launch_json = FormatLaunchRecord(record);
  entry.priority = schedule.priority;
  entry.resumes = schedule.resumes;
  entry.gpus = schedule.gpus;
  return entry;
}

}  // namespace

absl::StatusOr<int64_t> NextTimeMs(const std::string& cron, int64_t after_ms) {
  ASSIGN_OR_RETURN(const CronTimes times, ParseCron(cron));
  const std::optional<absl::Time> next =
      NextCronTime(times, absl::FromUnixMillis(after_ms), absl::LocalTimeZone());
  if (!next.has_value()) return absl::NotFoundError(absl::StrCat(cron, " never comes"));
  return absl::ToUnixMillis(*next);
}

absl::Status MakeDueEntries(CommandContext& context, BatchStore& batches) {
  ASSIGN_OR_RETURN(const auto schedules, batches.Schedules());
  const int64_t now_ms = context.NowMs();
  std::map<std::string, std::string> names;
  for (const auto& [batch_id, schedule] : schedules) {
    if (schedule.ended || schedule.next_ms > now_ms) continue;
    if (names.empty()) {
      ASSIGN_OR_RETURN(const std::vector<Batch> open, batches.List(/*open_only=*/true));
      for (const Batch& batch : open) names[batch.batch_id] = batch.name;
    }
    absl::StatusOr<int64_t> next_ms = NextTimeMs(schedule.cron, now_ms);
    absl::Status status = next_ms.status();
    if (status.ok()) {
      status =
          batches
              .MakeDue(schedule, names[batch_id], *next_ms,
                       [&due = schedule](const std::string& name) { return EntryOf(due, name); })
              .status();
    }
    // One that cannot go on holds up no other.
    if (!status.ok()) {
      context.Warn(absl::StrCat("schedule ", names[batch_id], ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace gpuctl
