#include "agent/base/time_stamp.h"

#include <algorithm>

#include "nlohmann/json.hpp"

namespace gpuctl {

TimeStamp StampNow(const std::string& boot_id, Clock& clock) {
  return {boot_id, absl::ToInt64Milliseconds(clock.SinceBoot()), absl::ToUnixMillis(clock.Now())};
}

absl::Duration Elapsed(const TimeStamp& from, const TimeStamp& to) {
  const int64_t elapsed_ms = from.boot_id == to.boot_id
                                 ? to.since_boot_ms - from.since_boot_ms
                                 : std::max(to.since_boot_ms, to.time_ms - from.time_ms);
  return absl::Milliseconds(std::max(int64_t{0}, elapsed_ms));
}

nlohmann::ordered_json StampToJson(const TimeStamp& stamp) {
  nlohmann::ordered_json json;
  json["boot_id"] = stamp.boot_id;
  json["since_boot_ms"] = stamp.since_boot_ms;
  json["time_ms"] = stamp.time_ms;
  return json;
}

std::optional<TimeStamp> StampFromJson(const nlohmann::json& json) {
  if (!json.is_object()) return std::nullopt;
  const auto boot_id = json.find("boot_id");
  const auto since_boot = json.find("since_boot_ms");
  const auto time = json.find("time_ms");
  if (boot_id == json.end() || !boot_id->is_string() || since_boot == json.end() ||
      !since_boot->is_number_integer() || time == json.end() || !time->is_number_integer()) {
    return std::nullopt;
  }
  return TimeStamp{boot_id->get<std::string>(), since_boot->get<int64_t>(), time->get<int64_t>()};
}

}  // namespace gpuctl
