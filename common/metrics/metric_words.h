// The names that scripts give to their numbers, and words with numbers behind them. Pure.
#ifndef GPUCTL_COMMON_METRICS_METRIC_WORDS_H_
#define GPUCTL_COMMON_METRICS_METRIC_WORDS_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "common/metrics/metric_sample.h"

namespace gpuctl {

enum class MetricKey {
  kStep,
  kTotal,
  kEpoch,
  kTotalEpochs,
  kLoss,
  kEvalLoss,
  kRate,
  kGradNorm,
  kTokens
};

// Returns the meaning of a name that scripts use; nullopt for an unknown one.
std::optional<MetricKey> MetricKeyOf(absl::string_view name);

// Stores a number under its meaning. A count that is negative or not whole is ignored.
void SetNumber(MetricKey key, double value, MetricSample& sample);

// Parses a number, possibly quoted as newer Trainers print it.
std::optional<double> ParseNumber(absl::string_view text);

// Parses a number as scripts print it: "12,341.60", "2,9" with a decimal comma, and in a count
// "5,000". Of a list such as "1e-3,2e-3" it is the first one.
std::optional<double> ParsePrintedNumber(MetricKey key, absl::string_view text);

// Reads "step=10 loss=0.5", "step 10: train loss 1.2, val loss 1.3", "iteration 10/ 1000 | lm loss:
// 1.2E+00". A loss behind a word such as "val" or "test" is one of held-out data.
// A line such as "Best loss: 1.2 at step 400" gives no numbers.
void ReadWords(absl::string_view line, MetricSample& sample);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_METRICS_METRIC_WORDS_H_
