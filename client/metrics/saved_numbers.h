// What was read from a job's output so far, as bytes: then the next reader reads on from there.
// Pure.
#ifndef GPUCTL_CLIENT_METRICS_SAVED_NUMBERS_H_
#define GPUCTL_CLIENT_METRICS_SAVED_NUMBERS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "client/metrics/progress.h"
#include "common/metrics/output_metrics.h"

namespace gpuctl {

struct SavedNumbers {
  int64_t offset = 0;     // the first byte of the output that was not read
  std::string before;     // the bytes before it: another output has others
  OutputMetrics metrics;  // without a torn line: that begins at `offset`
  TrainingProgress progress;
};

std::string FormatSavedNumbers(SavedNumbers saved);
// Returns nullopt for bytes that are damaged or of another version.
std::optional<SavedNumbers> ParseSavedNumbers(absl::string_view bytes);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_METRICS_SAVED_NUMBERS_H_
