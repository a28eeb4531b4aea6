// The laptop's own guard: `gpuctl reap -y` every few minutes by whatever starts things regularly
// here: launchd on macOS; systemd's user timers, else cron, on Linux.
#ifndef GPUCTL_CLIENT_VERBS_REAP_SCHEDULE_H_
#define GPUCTL_CLIENT_VERBS_REAP_SCHEDULE_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace gpuctl {

// Both return what was done, for people. FAILED_PRECONDITION where this computer has none of them;
// UNAUTHENTICATED (exit code 120) when it would not find a key that is found here.
absl::StatusOr<std::string> InstallReap(absl::Duration every);
absl::StatusOr<std::string> UninstallReap();

// What is installed. Pure.
struct ReapJob {
  std::string program;  // absolute path of gpuctl
  // Variables that say where things are: GPUCTL_*_DIR, addresses of markets. Never a key.
  std::map<std::string, std::string> where;
  absl::Duration every;
  std::string log;  // what it prints
};
std::string LaunchdPlist(const ReapJob& job);
std::string SystemdService(const ReapJob& job);
std::string SystemdTimer(const ReapJob& job);
// INVALID_ARGUMENT for what cron cannot say: below a minute, no divisor of an hour or a day, longer
// than it reads.
absl::StatusOr<std::string> CronLine(const ReapJob& job);
// `crontab` without our line, then with `line` unless it is empty.
std::string ReplaceCronLine(absl::string_view crontab, absl::string_view line);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_REAP_SCHEDULE_H_
