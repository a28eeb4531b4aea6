// A moment from which time can be measured even after a restart of the process or the machine.
#ifndef GPUCTL_AGENT_BASE_TIME_STAMP_H_
#define GPUCTL_AGENT_BASE_TIME_STAMP_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/base/clock.h"

namespace gpuctl {

struct TimeStamp {
  std::string boot_id;
  int64_t since_boot_ms = 0;
  int64_t time_ms = 0;  // wall time, Unix epoch
};

TimeStamp StampNow(const std::string& boot_id, Clock& clock);

// Returns the time from `from` to `to`, never negative. Within one boot it uses the boot clock:
// suspend counts, jumps of the wall clock do not. Across boots it uses wall time, and is at least
// the time since this boot.
absl::Duration Elapsed(const TimeStamp& from, const TimeStamp& to);

nlohmann::ordered_json StampToJson(const TimeStamp& stamp);
// Returns nothing for JSON of another shape.
std::optional<TimeStamp> StampFromJson(const nlohmann::json& json);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_TIME_STAMP_H_
