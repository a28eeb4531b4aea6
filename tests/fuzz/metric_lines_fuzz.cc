// Fuzzes a job's output as the renderer reads it: lines, their numbers, and the text that is safe
// for a terminal.
#include <cstdint>
#include <cstdlib>

#include "client/metrics/progress.h"
#include "client/metrics/saved_numbers.h"
#include "client/terminal/line_assembler.h"
#include "common/metrics/metric_lines.h"
#include "common/metrics/output_metrics.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  gpuctl::LineAssembler lines;
  gpuctl::OutputMetrics metrics;
  gpuctl::TrainingProgress progress;
  const auto take = [&](absl::string_view line) {
    if (const auto sample = metrics.Add(line); sample.has_value()) {
      if (sample->empty()) abort();
      progress.Add(*sample);
    }
    if (const auto sample = gpuctl::ParseMetricsJson(line); sample.has_value()) {
      progress.Add(*sample);
    }
    (void)gpuctl::ParseTelemetry(line);
    const std::string shown = gpuctl::SanitizeLine(gpuctl::AfterCarriageReturns(line));
    for (size_t i = 0; i < shown.size(); ++i) {
      const auto c = static_cast<unsigned char>(shown[i]);
      // An escape may only begin a colour.
      if (c == 0x1b && (i + 1 == shown.size() || shown[i + 1] != '[')) abort();
      if (c < 0x20 && c != 0x1b) abort();
    }
    if (gpuctl::DisplayWidth(gpuctl::TruncateToWidth(shown, 10)) > 10) abort();
  };
  // Add the input in two pieces: the end of a chunk must not make unsafe text safe.
  lines.Add(bytes.substr(0, size / 2), take);
  lines.Add(bytes.substr(size / 2), take);
  take(lines.TakePartial());
  gpuctl::OutputMetrics whole;
  const auto add = [&](const gpuctl::MetricSample& sample) { progress.Add(sample); };
  whole.Read(bytes.substr(0, size / 2), add);
  whole.Look(add);
  whole.Read(bytes.substr(size / 2), add);
  if (!gpuctl::ParseSavedNumbers(gpuctl::FormatSavedNumbers({0, "", whole, progress}))) abort();
  (void)gpuctl::ParseSavedNumbers(bytes);
  (void)progress.Eta();
  return 0;
}
