// Runs `gpuctl reap -y` every few minutes on the laptop: by launchd on macOS; by systemd's user
// timers, else cron, on Linux.
#ifndef GPUCTL_CLIENT_VERBS_REAP_SCHEDULE_H_
#define GPUCTL_CLIENT_VERBS_REAP_SCHEDULE_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace gpuctl {

// Both return what was done, for people. FAILED_PRECONDITION when this computer has none of these
// schedulers; UNAUTHENTICATED (exit code 120) when the scheduled command would not find a key that
// is found now.
absl::StatusOr<std::string> InstallReap(absl::Duration every);
absl::StatusOr<std::string> UninstallReap();

// The job that is installed. The functions below are pure.
struct ReapJob {
  std::string program;  // absolute path of gpuctl
  // Environment variables for the job: GPUCTL_*_DIR, GPUCTL_KEY_STORE, addresses of markets. Never
  // a key.
  std::map<std::string, std::string> where;
  absl::Duration every;
  std::string log;  // the file for its stderr
};
std::string LaunchdPlist(const ReapJob& job);
std::string SystemdService(const ReapJob& job);
std::string SystemdTimer(const ReapJob& job);
// Returns the job's line in a crontab. INVALID_ARGUMENT when cron cannot express it: an interval
// below a minute or no divisor of an hour or a day, or a line that is longer than cron reads.
absl::StatusOr<std::string> CronLine(const ReapJob& job);
// Returns `crontab` without our line, followed by `line` unless that is empty.
std::string ReplaceCronLine(absl::string_view crontab, absl::string_view line);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_REAP_SCHEDULE_H_
