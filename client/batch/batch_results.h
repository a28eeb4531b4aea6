// A metric of the runs of a batch: its last and best value in each, and which run is best. Pure.
#ifndef GPUCTL_CLIENT_BATCH_BATCH_RESULTS_H_
#define GPUCTL_CLIENT_BATCH_BATCH_RESULTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gpuctl {

enum class MetricGoal { kLowest, kHighest };

// Returns which values of a metric are good: the lowest for names that say loss, error, perplexity
// and the like, the highest for accuracy, F1, reward and the like; nothing for other names.
std::optional<MetricGoal> UsualGoal(absl::string_view metric);

// The values of one run. Those that are not finite are no best ones.
struct MetricValues {
  std::optional<double> last, best;
  std::optional<int64_t> best_step;  // of the first of equals; nothing when its line named none

  void Add(double value, MetricGoal goal, std::optional<int64_t> step = std::nullopt);
};

// Returns the index of the run with the best value; nothing when none has one. The first of equals.
std::optional<size_t> BestRun(const std::vector<MetricValues>& runs, MetricGoal goal);

// Returns the number under `metric` in a JSON object, also in an object below ("eval/loss" or
// "eval.loss"); nothing when it has none.
std::optional<double> MetricInJson(absl::string_view line, absl::string_view metric);

// Returns `text` as a cell of CSV (RFC 4180).
std::string CsvCell(absl::string_view text);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BATCH_BATCH_RESULTS_H_
