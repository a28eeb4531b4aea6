// Progress bars as scripts print them: tqdm's (also those of Lightning, torchtune, YOLO),
// fastprogress', Keras'. Pure.
#ifndef GPUCTL_COMMON_METRICS_PRINTED_BAR_H_
#define GPUCTL_COMMON_METRICS_PRINTED_BAR_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/metrics/metric_sample.h"

namespace gpuctl {

// One drawing of a bar. The views are parts of the parsed text.
struct PrintedBar {
  absl::string_view label;    // the text before it, without ':' at its end
  absl::string_view numbers;  // what follows its times: "loss=0.31, v_num=3"
  absl::string_view unit;     // "it" of "8.10it/s"; "" when the rate is unknown
  int64_t step = 0;
  int64_t total = -1;  // -1: the bar does not know it
  std::optional<double> elapsed_s, remaining_s;
  bool keras = false;
  size_t end = 0;  // offset of the first byte behind it
};

// Returns the first bar in `text`, which has no escape sequences; nullopt when there is none or its
// end is missing.
std::optional<PrintedBar> ParseBar(absl::string_view text);

// Returns the bar's numbers: counts, times, the loss beside it or in its label.
MetricSample SampleOfBar(const PrintedBar& bar);

// The epoch that a bar's label names, such as "Epoch 3/10" or torchtune's "1|10|Loss: 2.3".
struct LabelEpoch {
  int64_t epoch = 0;
  int64_t total = -1;  // -1: unknown
};
std::optional<LabelEpoch> EpochOfLabel(absl::string_view label);

// What a bar counts, by its label and unit.
enum class BarKind { kUnknown, kTraining, kHeldOut, kOther };
BarKind KindOfBar(const PrintedBar& bar);

// Returns the words of a label without numbers, in lower case: the same for each epoch.
std::string LabelKey(absl::string_view label);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_METRICS_PRINTED_BAR_H_
