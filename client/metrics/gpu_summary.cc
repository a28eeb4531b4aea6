#include "client/metrics/gpu_summary.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/gpu_memory.h"

namespace gpuctl {
namespace {

using Gpu = TelemetrySample::Gpu;

// More bars than this are no picture any more.
constexpr size_t kMostBars = 32;

// Returns the smallest and the largest value as one text each, or one when they look alike; "" when
// none is known.
std::string RangeOf(const std::vector<Gpu>& gpus,
                    const std::function<std::optional<double>(const Gpu&)>& value_of,
                    const absl::ParsedFormat<'f'>& format, const std::string& dash) {
  std::optional<double> low, high;
  for (const Gpu& gpu : gpus) {
    const std::optional<double> value = value_of(gpu);
    if (!value.has_value() || !std::isfinite(*value)) continue;
    low = std::min(low.value_or(*value), *value);
    high = std::max(high.value_or(*value), *value);
  }
  if (!low.has_value()) return "";
  const std::string first = absl::StrFormat(format, *low), last = absl::StrFormat(format, *high);
  return first == last ? first : absl::StrCat(first, dash, last);
}

const absl::ParsedFormat<'f'>& Whole() {
  static const auto* const format = new absl::ParsedFormat<'f'>("%.0f");
  return *format;
}
const absl::ParsedFormat<'f'>& Tenths() {
  static const auto* const format = new absl::ParsedFormat<'f'>("%.1f");
  return *format;
}

// In the GB in which a GPU is sold.
std::optional<double> Gigabytes(const std::optional<double>& bytes, const Gpu& gpu) {
  const double whole = gpu.memory_total_bytes.value_or(bytes.value_or(0));
  if (!bytes.has_value() || !std::isfinite(whole) || whole <= 0 || whole > 1e18) {
    return std::nullopt;
  }
  return *bytes / static_cast<double>(GpuGigabyte(static_cast<int64_t>(whole)));
}

std::string MemoryRange(const std::vector<Gpu>& gpus, const std::string& dash) {
  const std::string used = RangeOf(
      gpus, [](const Gpu& gpu) { return Gigabytes(gpu.memory_used_bytes, gpu); }, Tenths(), dash);
  const std::string whole = RangeOf(
      gpus, [](const Gpu& gpu) { return Gigabytes(gpu.memory_total_bytes, gpu); }, Whole(), dash);
  if (used.empty()) return "";
  return absl::StrCat(used, whole.empty() ? "" : "/", whole, " GB");
}

}  // namespace

std::string UtilizationText(const std::vector<Gpu>& gpus, const std::string& dash) {
  const std::string range = RangeOf(
      gpus, [](const Gpu& gpu) { return gpu.utilization_percent; }, Whole(), dash);
  return range.empty() ? "" : absl::StrCat(range, "%");
}

std::string UtilizationBars(const std::vector<Gpu>& gpus, bool ascii) {
  static constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr const char* kAscii[] = {"_", ".", "-", "=", "+", "*", "#", "@"};
  std::string bars;
  for (const Gpu& gpu : gpus) {
    const double busy = gpu.utilization_percent.value_or(NAN);
    if (!std::isfinite(busy)) {
      bars += "?";
      continue;
    }
    const auto step = static_cast<size_t>(std::clamp(busy / 12.5, 0.0, 7.0));
    bars += (ascii ? kAscii : kBlocks)[step];
  }
  return bars;
}

std::vector<std::string> GpuSummary(const std::vector<Gpu>& gpus, bool ascii) {
  const std::string dash = ascii ? "-" : "–";
  const std::string busy = UtilizationText(gpus, dash);
  std::vector<std::string> parts = {absl::StrCat(
      gpus.size(), " GPUs",
      busy.empty() || gpus.size() > kMostBars ? ""
                                              : absl::StrCat(" ", UtilizationBars(gpus, ascii)),
      busy.empty() ? "" : " ", busy)};
  const auto add = [&parts](const std::string& range, const char* unit) {
    if (!range.empty()) parts.push_back(absl::StrCat(range, unit));
  };
  add(MemoryRange(gpus, dash), "");
  add(RangeOf(
          gpus, [](const Gpu& gpu) { return gpu.power_w; }, Whole(), dash),
      " W");
  add(RangeOf(
          gpus, [](const Gpu& gpu) { return gpu.temperature_c; }, Whole(), dash),
      ascii ? " C" : "°C");
  return parts;
}

}  // namespace gpuctl
