#include "client/runs/output_loss.h"

#include "absl/strings/str_cat.h"
#include "client/base/quantity.h"

namespace gpuctl {

OutputLoss LossOf(const Lifecycle& lifecycle) {
  OutputLoss loss;
  for (const LifecycleEvent& event : lifecycle.events) {
    if (event.type != LifecycleEvent::Type::kDropped) continue;
    if (event.dropped_bytes > 0) {
      loss.places.push_back({event.output_size, event.dropped_bytes});
      loss.bytes += event.dropped_bytes;
    }
    loss.metric_lines += event.dropped_metric_lines;
  }
  return loss;
}

std::string DescribeLoss(const OutputLoss& loss) {
  constexpr size_t kNamed = 3;
  std::string text;
  if (loss.bytes > 0) {
    absl::StrAppend(&text, FormatBytes(loss.bytes),
                    " of output are missing: the node could not store them, its disk was full or "
                    "broken (");
    for (size_t i = 0; i < loss.places.size() && i < kNamed; ++i) {
      absl::StrAppend(&text, i == 0 ? "" : ", ", FormatBytes(loss.places[i].bytes), " at byte ",
                      loss.places[i].offset);
    }
    if (loss.places.size() > kNamed) {
      absl::StrAppend(&text, ", and ", loss.places.size() - kNamed, " more places");
    }
    text += ')';
  }
  if (loss.metric_lines > 0) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", loss.metric_lines,
                    loss.metric_lines == 1 ? " line" : " lines",
                    " of metrics were not stored: too long, or no room on the node");
  }
  return text;
}

}  // namespace gpuctl
