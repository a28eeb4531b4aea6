// Times of a schedule, as crontab(5) has them: minute, hour, day of the month, month, day of the
// week. Pure.
#ifndef GPUCTL_CLIENT_BASE_CRON_H_
#define GPUCTL_CLIENT_BASE_CRON_H_

#include <bitset>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace gpuctl {

struct CronTimes {
  std::bitset<60> minutes;
  std::bitset<24> hours;
  std::bitset<32> days;     // of the month, from 1
  std::bitset<13> months;   // from 1
  std::bitset<7> weekdays;  // 0: Sunday
  // When both are restricted, a day that fulfils one of them counts, as in every cron.
  bool any_day = false, any_weekday = false;
};

// Parses five fields with *, numbers, ranges (1-5), lists (1,3), steps (*/15, 8-18/2) and English
// names (jan, mon), or @hourly, @daily, @weekly, @monthly, @yearly. 7 is Sunday, too.
// INVALID_ARGUMENT names the field; also for times that never come, such as 30 February.
absl::StatusOr<CronTimes> ParseCron(absl::string_view text);

// Returns the first such time after `after`, in `zone`. A time that the change to summer time skips
// comes at the change; one that comes twice in autumn counts the first time only. Nothing when
// there is none within nine years.
std::optional<absl::Time> NextCronTime(const CronTimes& times, absl::Time after,
                                       absl::TimeZone zone);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_CRON_H_
