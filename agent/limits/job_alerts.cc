#include "agent/limits/job_alerts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/metrics/metric_lines.h"

namespace gpuctl {
namespace {

constexpr int64_t kReadBytes = int64_t{256} << 10;
// At most so much is read at a look, of each stream: a job that floods its output must not keep the
// guard from its other work.
constexpr int64_t kMostAtOnce = int64_t{4} << 20;
// A job whose output is so far ahead is read from its newest part on.
constexpr int64_t kMostBehind = int64_t{64} << 20;

// Returns the next bytes and moves `offset` behind them; "" at the end and after an error, which
// the next look meets again.
std::string ReadOn(StreamReader& stream, int64_t& offset) {
  std::string bytes(static_cast<size_t>(kReadBytes), '\0');
  absl::StatusOr<int64_t> count = stream.Read(offset, bytes.data(), kReadBytes);
  if (absl::IsOutOfRange(count.status())) {
    const absl::StatusOr<int64_t> next = stream.NextStored(offset);
    if (!next.ok()) return "";
    offset = *next;
    count = stream.Read(offset, bytes.data(), kReadBytes);
  }
  if (!count.ok()) return "";
  bytes.resize(static_cast<size_t>(*count));
  offset += *count;
  return bytes;
}

AlertWatch WatchOf(const gpuctl::v1::JobSpec& spec) {
  std::vector<StopCondition> conditions;
  for (const std::string& text : spec.alerts().stop_if()) {
    // One of a newer client, with words that this build does not know, never holds.
    if (absl::StatusOr<StopCondition> condition = ParseStopCondition(text); condition.ok()) {
      conditions.push_back(*std::move(condition));
    }
  }
  std::vector<Plateau> plateaus;
  for (const gpuctl::v1::PlateauAlert& alert : spec.alerts().plateau()) {
    const Plateau plateau{alert.metric(), alert.steps(), alert.min_delta()};
    if (CheckPlateau(plateau).ok()) plateaus.push_back(plateau);
  }
  return {std::move(conditions), std::move(plateaus)};
}

}  // namespace

bool HasAlerts(const gpuctl::v1::JobSpec& spec) {
  return spec.alerts().stop_if_size() > 0 || spec.alerts().plateau_size() > 0;
}

JobAlerts::JobAlerts(const JobPaths& job, const gpuctl::v1::JobSpec& spec)
    : spec_(spec), metrics_(job.metrics, StreamShape()), output_(job.output, OutputShape(spec)) {}

std::optional<std::string> JobAlerts::Look(const Lifecycle& lifecycle) {
  const LifecycleEvent* const last = LastStateEvent(lifecycle);
  if (last == nullptr || last->type != LifecycleEvent::Type::kStarted) return std::nullopt;
  const LifecycleEvent* begin = last;
  if (const std::optional<SetupState> setup = SetupOf(lifecycle);
      setup.has_value() && setup->attempt == last->attempt) {
    // What a setup prints are no numbers of the job.
    if (setup->running || setup->failed) return std::nullopt;
    begin = &*std::find_if(lifecycle.events.rbegin(), lifecycle.events.rend(),
                           [](const LifecycleEvent& event) {
                             return event.type == LifecycleEvent::Type::kSetupEnded;
                           });
  }
  if (begin->attempt != attempt_) BeginAttempt(*begin);
  ReadMetrics();
  if (!has_metrics_ && !why_.has_value()) ReadOutput();
  return why_;
}

void JobAlerts::BeginAttempt(const LifecycleEvent& started) {
  attempt_ = started.attempt;
  metrics_offset_ = started.metrics_size;
  output_offset_ = started.output_size;
  line_.clear();
  has_metrics_ = false;
  watch_.emplace(WatchOf(spec_));
  steps_ = EpochSteps();
  printed_ = OutputMetrics();
  printed_.SetRanks(spec_.processes() != 0);
  why_.reset();
}

void JobAlerts::ReadMetrics() {
  for (int64_t read = 0; read < kMostAtOnce && !why_.has_value();) {
    const std::string bytes = ReadOn(metrics_, metrics_offset_);
    if (bytes.empty()) return;
    read += static_cast<int64_t>(bytes.size());
    size_t begin = 0;
    for (size_t end = 0; (end = bytes.find('\n', begin)) != std::string::npos; begin = end + 1) {
      line_.append(bytes, begin, end - begin);
      TakeMetricsLine();
      line_.clear();
    }
    line_.append(bytes, begin);
    // No shim writes such a line.
    if (line_.size() > 2 * kMaxMetricLineBytes) line_.clear();
  }
}

void JobAlerts::TakeMetricsLine() {
  std::optional<MetricSample> sample = ParseMetricsJson(line_);
  if (!sample.has_value() || sample->checkpoint) return;
  if (!has_metrics_) {
    // From now on they count, and not what the output told before.
    has_metrics_ = true;
    watch_.emplace(WatchOf(spec_));
  }
  if (sample->loss.has_value()) steps_.Unfold(StepScope::kUnknown, *sample);
  Take(*sample);
}

void JobAlerts::ReadOutput() {
  const absl::StatusOr<Extent> extent = output_.GetExtent();
  if (!extent.ok()) return;
  if (extent->size - output_offset_ > kMostBehind) {
    output_offset_ = extent->size - kMostAtOnce;
    printed_ = OutputMetrics();
    printed_.SetRanks(spec_.processes() != 0);
  }
  for (int64_t read = 0; read < kMostAtOnce && !why_.has_value();) {
    const std::string bytes = ReadOn(output_, output_offset_);
    if (bytes.empty()) return;
    read += static_cast<int64_t>(bytes.size());
    printed_.Read(bytes, [this](const MetricSample& sample) { Take(sample); });
  }
}

void JobAlerts::Take(const MetricSample& sample) {
  if (!why_.has_value()) why_ = watch_->Add(sample);
}

}  // namespace gpuctl
