#include "client/dashboard/run_series.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/base/quantity.h"
#include "client/terminal/safe_text.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr int64_t kMetricsAtOnce = 2 << 20;
constexpr int64_t kTelemetryAtOnce = 4 << 20;
constexpr int64_t kLogTailBytes = 128 << 10;
constexpr size_t kMostLineBytes = 4 << 10;

// Returns a line of a job without colours, made safe; "" as the text of an empty one.
std::string PlainLine(absl::string_view raw) {
  const std::string safe = SanitizeLine(AfterCarriageReturns(raw).substr(0, 16 * kMostLineBytes));
  std::string plain;
  for (size_t i = 0; i < safe.size(); ++i) {
    if (safe[i] == '\x1b') {
      const size_t end = safe.find('m', i);
      if (end == std::string::npos) break;
      i = end;
    } else {
      plain += safe[i];
    }
  }
  if (plain.size() <= kMostLineBytes) return MakeSafe(plain);
  size_t cut = kMostLineBytes;
  while (cut > 0 && (static_cast<unsigned char>(plain[cut]) & 0xc0) == 0x80) --cut;
  return absl::StrCat(MakeSafe(plain.substr(0, cut)), " [", plain.size() - cut, " bytes more]");
}

nlohmann::ordered_json OrNull(const std::optional<double>& value) { return NumberToJson(value); }

}  // namespace

void MakeStringsSafe(nlohmann::ordered_json& json) {
  if (json.is_string()) {
    json = MakeSafe(json.get_ref<const std::string&>());
  } else if (json.is_structured()) {
    for (auto& each : json) MakeStringsSafe(each);
  }
}

RunSeries::RunSeries(const std::string& mirror_dir, int64_t output_segment_bytes)
    : mirror_(mirror_dir, output_segment_bytes), history_(kMostSteps), reader_(mirror_, history_) {}

absl::StatusOr<bool> RunSeries::Read(int64_t heard_ms, bool over) {
  ASSIGN_OR_RETURN(bool more, reader_.ReadSome(heard_ms, kMetricsAtOnce));
  if (over && !more && !finished_) {
    finished_ = true;
    reader_.Finish();
  }
  ASSIGN_OR_RETURN(const Extent extent, mirror_.TelemetryExtent());
  if (telemetry_offset_ < 0 || telemetry_offset_ > extent.size) {
    telemetry_offset_ = extent.first_offset;
    telemetry_lines_ = LineAssembler();
  }
  const int64_t end = std::min(extent.size, telemetry_offset_ + kTelemetryAtOnce);
  while (telemetry_offset_ < end) {
    ASSIGN_OR_RETURN(const std::string bytes, mirror_.ReadTelemetry(telemetry_offset_));
    if (bytes.empty()) break;
    telemetry_offset_ += static_cast<int64_t>(bytes.size());
    telemetry_lines_.Add(bytes, [this](absl::string_view line) {
      const std::optional<TelemetrySample> sample = ParseTelemetry(line);
      if (sample.has_value()) gpus_.Add(*sample);
    });
  }
  more = more || telemetry_offset_ < extent.size;
  RETURN_IF_ERROR(ReadLog());
  caught_up_ = !more;
  return more;
}

void RunSeries::AddLine(absl::string_view line) {
  if (std::exchange(log_is_torn_, false)) {
    // What a bar drew later in that line is whole. The assembler ends a line that is very long.
    const size_t drawn = line.find('\r');
    if (drawn == absl::string_view::npos || drawn + 1 == line.size()) return;
    line.remove_prefix(drawn);
  }
  log_.push_back(PlainLine(line));
  ++new_lines_;
  if (log_.size() > kMostLines) log_.pop_front();
  new_lines_ = std::min(new_lines_, log_.size());
}

absl::Status RunSeries::ReadLog() {
  ASSIGN_OR_RETURN(const Extent extent, mirror_.OutputExtent());
  const bool begins = log_offset_ < 0;
  // A job that prints faster than anybody reads loses the middle of what nobody has read here.
  if (begins || log_offset_ > extent.size || extent.size - log_offset_ > 4 * kLogTailBytes) {
    log_offset_ = std::max(extent.first_offset, extent.size - kLogTailBytes);
    log_is_torn_ = log_offset_ > 0;
    log_lines_ = LineAssembler();
    log_.clear();
    new_lines_ = 0;
    log_restarted_ = true;
  }
  while (log_offset_ < extent.size) {
    ASSIGN_OR_RETURN(const std::string bytes, mirror_.ReadOutput(log_offset_));
    if (bytes.empty()) break;
    log_offset_ += static_cast<int64_t>(bytes.size());
    log_lines_.Add(bytes, [this](absl::string_view line) { AddLine(line); });
  }
  absl::string_view partial = log_lines_.partial();
  if (log_is_torn_) partial.remove_prefix(std::min(partial.size(), partial.find('\r')));
  partial_ = partial.empty() ? "" : PlainLine(partial);
  return absl::OkStatus();
}

nlohmann::ordered_json RunSeries::Json(int64_t from_step, size_t from_gpu, size_t lines,
                                       bool log_is_whole) const {
  const std::vector<HistoryPoint>& points = history_.points();
  const auto first =
      std::lower_bound(points.begin(), points.end(), from_step,
                       [](const HistoryPoint& point, int64_t step) { return point.step < step; });
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (auto point = first; point != points.end(); ++point) {
    steps.push_back({point->step, OrNull(point->loss), OrNull(point->eval_loss),
                     OrNull(point->learning_rate), OrNull(point->tokens_per_s)});
  }
  nlohmann::ordered_json gpus = nlohmann::ordered_json::array();
  for (size_t i = from_gpu; i < gpus_.points().size(); ++i) {
    const GpuPoint& point = gpus_.points()[i];
    gpus.push_back({point.time_ms, OrNull(point.utilization_percent), OrNull(point.memory_percent),
                    OrNull(point.power_w), OrNull(point.temperature_c)});
  }
  nlohmann::ordered_json log = nlohmann::ordered_json::array();
  for (size_t i = log_.size() - std::min(lines, log_.size()); i < log_.size(); ++i) {
    log.push_back(log_[i]);
  }
  nlohmann::ordered_json checkpoints = nlohmann::ordered_json::array();
  const std::vector<MetricSample>& told = reader_.checkpoints();
  constexpr size_t kShown = 100;
  for (size_t i = told.size() - std::min(told.size(), kShown); i < told.size(); ++i) {
    checkpoints.push_back({{"step", told[i].step.has_value() ? nlohmann::ordered_json(*told[i].step)
                                                             : nlohmann::ordered_json()},
                           {"time_ms", told[i].time_ms > 0 ? nlohmann::ordered_json(told[i].time_ms)
                                                           : nlohmann::ordered_json()}});
  }
  nlohmann::ordered_json own = nlohmann::ordered_json::array();
  for (const OwnNumber& number : reader_.own().Newest()) {
    own.push_back({{"name", MakeSafe(number.name)}, {"value", OrNull(number.value)}});
  }
  // What comes replaces what the page has: steps from `from_step` on (null: all), GPUs from the
  // index `from_gpu` on; the log only when it is whole.
  constexpr int64_t kLargestOfScripts = (int64_t{1} << 53) - 1;
  return {{"from_step", from_step == HistoryReader::kAll
                            ? nlohmann::ordered_json()
                            : nlohmann::ordered_json(std::min(from_step, kLargestOfScripts))},
          {"steps", std::move(steps)},
          {"thinned", history_.thinned()},
          {"from_gpu", from_gpu},
          {"gpus", std::move(gpus)},
          {"log_is_whole", log_is_whole},
          {"log", std::move(log)},
          {"partial_line", partial_},
          {"checkpoints_told", std::move(checkpoints)},
          {"own", std::move(own)},
          {"caught_up", caught_up_}};
}

nlohmann::ordered_json RunSeries::Whole() const {
  return Json(HistoryReader::kAll, 0, log_.size(), /*log_is_whole=*/true);
}

nlohmann::ordered_json RunSeries::TakeNews() {
  const int64_t from_step = reader_.TakeChanged();
  const size_t from_gpu = gpus_.TakeChanged();
  const size_t checkpoints = reader_.checkpoints().size();
  const bool restarted = std::exchange(log_restarted_, false);
  const size_t lines = restarted ? log_.size() : new_lines_;
  new_lines_ = 0;
  if (from_step == HistoryReader::kNothing && from_gpu == gpus_.points().size() && lines == 0 &&
      !restarted && checkpoints == std::exchange(told_checkpoints_, checkpoints) &&
      caught_up_ == std::exchange(told_caught_up_, caught_up_) &&
      reader_.own().lines() == std::exchange(told_own_, reader_.own().lines()) &&
      partial_ == std::exchange(told_partial_, partial_)) {
    return nullptr;
  }
  told_checkpoints_ = checkpoints;
  told_caught_up_ = caught_up_;
  told_own_ = reader_.own().lines();
  told_partial_ = partial_;
  return Json(from_step, from_gpu, lines, restarted);
}

}  // namespace gpuctl
