#include "client/base/quantity.h"

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/other_tools.h"

namespace gpuctl {
namespace {

// Takes a number from the front of `text`; false when there is none.
bool ConsumeNumber(absl::string_view& text, double& value) {
  size_t length = 0;
  while (length < text.size() &&
         (absl::ascii_isdigit(static_cast<unsigned char>(text[length])) || text[length] == '.')) {
    ++length;
  }
  if (length == 0 || !absl::SimpleAtod(text.substr(0, length), &value)) return false;
  text.remove_prefix(length);
  return true;
}

absl::string_view ConsumeUnit(absl::string_view& text) {
  size_t length = 0;
  while (length < text.size() && absl::ascii_isalpha(static_cast<unsigned char>(text[length]))) {
    ++length;
  }
  const absl::string_view unit = text.substr(0, length);
  text.remove_prefix(length);
  return unit;
}

double SecondsPerUnit(absl::string_view unit) {
  if (unit == "ms") return 0.001;
  if (unit == "s") return 1;
  if (unit == "m" || unit == "min") return 60;
  if (unit == "h") return 3600;
  if (unit == "d") return 86400;
  if (unit == "w") return 7 * 86400;
  return 0;
}

double BytesPerUnit(absl::string_view unit) {
  if (unit.empty() || unit == "B") return 1;
  constexpr absl::string_view kPrefixes = "KMGTP";
  const size_t power = kPrefixes.find(absl::ascii_toupper(static_cast<unsigned char>(unit[0])));
  if (power == absl::string_view::npos) return 0;
  const absl::string_view rest = unit.substr(1);
  if (rest.empty() || rest == "B") return std::pow(1000.0, static_cast<double>(power + 1));
  if (rest == "i" || rest == "iB") return std::pow(1024.0, static_cast<double>(power + 1));
  return 0;
}

}  // namespace

absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text) {
  const std::string original(text);
  const auto wrong = [&original] {
    const std::string ours = DurationOfSlurm(original);
    const bool is_number = original.find_first_of(":-") == original.npos;
    if (!ours.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", original, "\" has no unit; ",
          is_number ? absl::StrCat("write ", original, "s, ", original, "m or ", original, "h")
                    : "",
          is_number ? "; " : "", "Slurm means ", ours, " by it"));
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", original, "\" is no duration; write a number with a unit, like 90s, 10m, 6h or 2d"));
  };
  text = absl::StripAsciiWhitespace(text);
  if (text.empty()) return wrong();
  double total_s = 0;
  while (!text.empty()) {
    double value = 0;
    if (!ConsumeNumber(text, value)) return wrong();
    const double unit_s = SecondsPerUnit(ConsumeUnit(text));
    if (unit_s == 0) return wrong();
    total_s += value * unit_s;
  }
  constexpr double kTenYears = 10 * 366 * 86400.0;
  if (!(total_s <= kTenYears)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", original, "\" is longer than ten years"));
  }
  return absl::Milliseconds(static_cast<int64_t>(std::llround(total_s * 1000)));
}

absl::StatusOr<int64_t> ParseSize(absl::string_view text) {
  const std::string original(text);
  text = absl::StripAsciiWhitespace(text);
  double value = 0;
  const bool has_number = ConsumeNumber(text, value);
  text = absl::StripLeadingAsciiWhitespace(text);
  const double unit = BytesPerUnit(text);
  if (!has_number || unit == 0 || !(value * unit < 9e18)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", original, "\" is no size; write a number with a unit, like 500MB, 100GB or 8MiB"));
  }
  return static_cast<int64_t>(std::llround(value * unit));
}

absl::StatusOr<double> ParsePrice(absl::string_view text) {
  absl::string_view rest = absl::StripAsciiWhitespace(text);
  if (!rest.empty() && rest[0] == '$') rest.remove_prefix(1);
  double price = 0;
  if (!ConsumeNumber(rest, price) || !rest.empty() || !(price > 0) || !(price < 1e6)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is no price; write US dollars, like 3.50"));
  }
  return price;
}

std::string FormatBytes(int64_t bytes) {
  if (bytes < 1000) return absl::StrCat(bytes, " B");
  constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return absl::StrFormat("%.*f %s", digits, value, kUnits[unit]);
}

std::string HumanDuration(absl::Duration duration) {
  if (duration == absl::InfiniteDuration()) return "for ever";
  int64_t seconds = absl::ToInt64Seconds(duration < absl::ZeroDuration() ? -duration : duration);
  if (seconds < 60) return absl::StrCat(seconds, "s");
  if (seconds < 3600) return absl::StrFormat("%dm %02ds", seconds / 60, seconds % 60);
  if (seconds < 86400) return absl::StrFormat("%dh %02dm", seconds / 3600, seconds / 60 % 60);
  return absl::StrFormat("%dd %dh", seconds / 86400, seconds / 3600 % 24);
}

std::string FormatRfc3339(int64_t time_ms) {
  if (time_ms <= 0) return "";
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromUnixMillis(time_ms),
                          absl::UTCTimeZone());
}

std::string FormatNumber(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const double magnitude = std::fabs(value);
  if (magnitude >= 1e6 || (magnitude != 0 && magnitude < 1e-4)) {
    return absl::StrFormat("%.3g", value);
  }
  if (magnitude >= 1000) return absl::StrFormat("%.0f", value);
  return absl::StrFormat("%.4g", value);
}

nlohmann::ordered_json NumberToJson(const std::optional<double>& value) {
  if (!value.has_value()) return nullptr;
  if (std::isfinite(*value)) return *value;
  return std::isnan(*value) ? "NaN" : *value > 0 ? "Infinity" : "-Infinity";
}

std::string FormatUsd(double usd) {
  const double size = std::fabs(usd);
  if (size == 0) return "$0.00";  // also of -0
  if (size >= 100) return absl::StrFormat("$%.0f", usd);
  if (size >= 0.01) return absl::StrFormat("$%.2f", usd);
  return absl::StrFormat("$%.4f", usd);
}

}  // namespace gpuctl
