#include "client/base/cron.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr int kMostDays = 9 * 366;  // 29 February may be eight years away
constexpr const char* kMonths[] = {"jan", "feb", "mar", "apr", "may", "jun",
                                   "jul", "aug", "sep", "oct", "nov", "dec"};
constexpr const char* kWeekdays[] = {"sun", "mon", "tue", "wed", "thu", "fri", "sat"};
constexpr std::pair<const char*, const char*> kWords[] = {
    {"@hourly", "0 * * * *"},  {"@daily", "0 0 * * *"},   {"@midnight", "0 0 * * *"},
    {"@weekly", "0 0 * * 0"},  {"@monthly", "0 0 1 * *"}, {"@yearly", "0 0 1 1 *"},
    {"@annually", "0 0 1 1 *"}};

struct Field {
  const char* name;
  int low, high;
};
constexpr Field kFields[] = {{"minute", 0, 59},
                             {"hour", 0, 23},
                             {"day of the month", 1, 31},
                             {"month", 1, 12},
                             {"day of the week", 0, 7}};

absl::Status Wrong(const Field& field, absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("the ", field.name, " \"", text, "\" ", why));
}

// Returns the value of a number or name.
absl::StatusOr<int> ValueOf(const Field& field, absl::string_view text) {
  const std::string lower = absl::AsciiStrToLower(text);
  if (field.high == 12) {
    for (int i = 0; i < 12; ++i) {
      if (lower == kMonths[i]) return i + 1;
    }
  }
  if (field.high == 7) {
    for (int i = 0; i < 7; ++i) {
      if (lower == kWeekdays[i]) return i;
    }
  }
  int value = 0;
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == text.npos;
  if (!digits || !absl::SimpleAtoi(text, &value)) return Wrong(field, text, "is no number");
  if (value < field.low || value > field.high) {
    return Wrong(field, text, absl::StrCat("is not within ", field.low, " and ", field.high));
  }
  return value;
}

// Adds the values of one part of a list, such as "8-18/2".
template <typename Set>
absl::Status AddPart(const Field& field, absl::string_view part, Set& set) {
  const std::vector<absl::string_view> stepped = absl::StrSplit(part, absl::MaxSplits('/', 1));
  int low = field.low, high = field.high, step = 1;
  if (stepped.size() == 2 && (!absl::SimpleAtoi(stepped[1], &step) || step < 1 ||
                              stepped[1].find_first_not_of("0123456789") != part.npos)) {
    return Wrong(field, part, "has no number of at least 1 behind the /");
  }
  if (stepped[0] != "*") {
    const std::vector<absl::string_view> ends = absl::StrSplit(stepped[0], absl::MaxSplits('-', 1));
    ASSIGN_OR_RETURN(low, ValueOf(field, ends[0]));
    if (ends.size() == 2) {
      ASSIGN_OR_RETURN(high, ValueOf(field, ends[1]));
      // "fri-sun"
      if (field.high == 7 && high == 0 && low > 0) high = 7;
    } else if (stepped.size() == 1) {
      high = low;
    }
    if (high < low) return Wrong(field, part, "ends before it begins");
  }
  // 7 is Sunday, as 0 is.
  for (int i = low; i <= high; i += step) set.set(static_cast<size_t>(field.high == 7 ? i % 7 : i));
  return absl::OkStatus();
}

template <typename Set>
absl::Status ParseField(const Field& field, absl::string_view text, Set& set) {
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    RETURN_IF_ERROR(AddPart(field, part, set));
  }
  return absl::OkStatus();
}

bool IsDay(const CronTimes& times, absl::CivilDay day) {
  if (!times.months.test(static_cast<size_t>(day.month()))) return false;
  const bool in_month = times.days.test(static_cast<size_t>(day.day()));
  // absl counts from Monday.
  const int weekday = (static_cast<int>(absl::GetWeekday(day)) + 1) % 7;
  const bool in_week = times.weekdays.test(static_cast<size_t>(weekday));
  if (!times.any_day && !times.any_weekday) return in_month || in_week;
  return in_month && in_week;
}

}  // namespace

absl::StatusOr<CronTimes> ParseCron(absl::string_view text) {
  std::string line(absl::StripAsciiWhitespace(text));
  for (const auto& [word, meaning] : kWords) {
    if (absl::AsciiStrToLower(line) == word) line = meaning;
  }
  const std::vector<std::string> fields =
      absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (fields.size() != 5) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", text, "\" has ", fields.size(), fields.size() == 1 ? " field" : " fields",
        ", not five: minute, hour, day of the month, month, day of the week, like 0 3 * * *"));
  }
  CronTimes times;
  RETURN_IF_ERROR(ParseField(kFields[0], fields[0], times.minutes));
  RETURN_IF_ERROR(ParseField(kFields[1], fields[1], times.hours));
  RETURN_IF_ERROR(ParseField(kFields[2], fields[2], times.days));
  RETURN_IF_ERROR(ParseField(kFields[3], fields[3], times.months));
  RETURN_IF_ERROR(ParseField(kFields[4], fields[4], times.weekdays));
  times.any_day = fields[2][0] == '*';
  times.any_weekday = fields[4][0] == '*';
  // 2000 is a leap year, and nine years have each date.
  if (!NextCronTime(times, absl::FromUnixSeconds(946684800), absl::UTCTimeZone()).has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" names a day that never comes"));
  }
  return times;
}

std::optional<absl::Time> NextCronTime(const CronTimes& times, absl::Time after,
                                       absl::TimeZone zone) {
  // In autumn civil time goes back, so the search begins a day earlier, and instants decide.
  absl::CivilDay day = absl::CivilDay(absl::ToCivilDay(after, zone)) - 1;
  for (int i = 0; i < kMostDays; ++i, ++day) {
    if (!IsDay(times, day)) continue;
    for (int hour = 0; hour < 24; ++hour) {
      if (!times.hours.test(static_cast<size_t>(hour))) continue;
      for (int minute = 0; minute < 60; ++minute) {
        if (!times.minutes.test(static_cast<size_t>(minute))) continue;
        const absl::TimeZone::TimeInfo info =
            zone.At(absl::CivilSecond(day.year(), day.month(), day.day(), hour, minute, 0));
        const absl::Time time =
            info.kind == absl::TimeZone::TimeInfo::SKIPPED ? info.trans : info.pre;
        if (time > after) return time;
      }
    }
  }
  return std::nullopt;
}

}  // namespace gpuctl
