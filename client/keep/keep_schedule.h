// Runs `gpuctl keep` every few minutes on the laptop: by launchd on macOS; by systemd's user
// timers, else cron, on Linux.
#ifndef GPUCTL_CLIENT_KEEP_KEEP_SCHEDULE_H_
#define GPUCTL_CLIENT_KEEP_KEEP_SCHEDULE_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace gpuctl {

// Both return what was done, for people. They remove the schedule of `gpuctl reap` that older
// versions installed. FAILED_PRECONDITION when this computer has none of these
// schedulers; UNAUTHENTICATED (exit code 120) when the scheduled command would not find a key that
// is found now.
absl::StatusOr<std::string> InstallKeep(absl::Duration every);
absl::StatusOr<std::string> UninstallKeep();

// Returns what InstallKeep would do, as lines for people, and changes nothing. Returns its errors.
absl::StatusOr<std::vector<std::string>> DescribeInstallation(absl::Duration every);

// The schedule that is installed.
struct KeepSchedule {
  std::string by;     // "launchd", "systemd", "cron"
  std::string where;  // its file, or words for the user's crontab
  absl::Duration every;
};
// Returns it; nothing when there is none. Reads the period from the schedule itself.
absl::StatusOr<std::optional<KeepSchedule>> FindKeepSchedule();

// The job that is installed.
struct KeepJob {
  // Its name: launchd's label is gpuctl.NAME, systemd's units are gpuctl-NAME, and the line in the
  // crontab ends with "# gpuctl NAME". The job of another name lies beside that of --install.
  std::string name = "keep";
  std::string program;  // absolute path of gpuctl
  // Environment variables for the job: GPUCTL_*_DIR, GPUCTL_KEY_STORE, addresses of markets. Never
  // a key.
  std::map<std::string, std::string> where;
  absl::Duration every;
  std::string log;       // the file for its stderr
  bool at_once = false;  // true: it runs first when it is installed, also by systemd
};

// The scheduler that InstallKeep would use now.
enum class Scheduler { kNone, kLaunchd, kSystemd, kCron };
Scheduler FindScheduler();
// Puts a job into it, in place of one of the same name. Returns the place, for people. The error is
// FAILED_PRECONDITION when the scheduler refuses.
absl::StatusOr<std::string> PutJob(Scheduler scheduler, const KeepJob& job);
// True when there is a job of this name, running or not.
absl::StatusOr<bool> HasJob(Scheduler scheduler, const std::string& name);
// Removes the job of this name from every scheduler that is here; OK when there is none.
absl::Status RemoveJob(const std::string& name);

// The functions below are pure.
std::string LaunchdPlist(const KeepJob& job);
std::string SystemdService(const KeepJob& job);
std::string SystemdTimer(const KeepJob& job);
// Returns the job's line in a crontab. INVALID_ARGUMENT when cron cannot express it: an interval
// below a minute or no divisor of an hour or a day, or a line that is longer than cron reads.
absl::StatusOr<std::string> CronLine(const KeepJob& job);
// Return the period of such a text; zero when it has none.
absl::Duration PeriodOfPlist(absl::string_view plist);
absl::Duration PeriodOfTimer(absl::string_view timer);
// Of our line in a crontab.
absl::Duration PeriodOfCrontab(absl::string_view crontab);
// Returns `crontab` without the line of the job `name`, followed by `line` unless that is empty.
std::string ReplaceCronLine(absl::string_view crontab, absl::string_view line,
                            const std::string& name = "keep");

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_KEEP_KEEP_SCHEDULE_H_
