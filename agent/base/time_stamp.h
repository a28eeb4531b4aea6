// A moment that can be measured from after a restart of the process or of the machine.
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

// Never negative. Within one boot by the boot clock: suspend counts, jumps of the wall clock do
// not. Across boots by wall time, and at least what this boot has lasted.
absl::Duration Elapsed(const TimeStamp& from, const TimeStamp& to);

nlohmann::ordered_json StampToJson(const TimeStamp& stamp);
// Nothing for JSON of another shape.
std::optional<TimeStamp> StampFromJson(const nlohmann::json& json);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_TIME_STAMP_H_
