// The numbers of a job's metrics whose names gpuctl gives no meaning, such as "accuracy". Pure.
#ifndef GPUCTL_CLIENT_HISTORY_OWN_METRICS_H_
#define GPUCTL_CLIENT_HISTORY_OWN_METRICS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gpuctl {

class OwnMetrics {
 public:
  // Further names are ignored, and so are further steps.
  static constexpr size_t kMostNames = 64;
  static constexpr size_t kMostSteps = 200'000;

  // The numbers of one step, by the index of their name.
  using Values = std::map<size_t, double>;

  // Takes the next line of metrics.jsonl. A number in an object, {"eval": {"f1": 0.5}}, is named
  // "eval/f1". A line without a step belongs to the last one. An attempt that begins again at an
  // earlier step takes the place of what came after that step.
  void Add(absl::string_view line);

  // Returns the names as the job wrote them, in the order in which they came first.
  const std::vector<std::string>& names() const { return names_; }
  // Returns the numbers by step.
  const std::map<int64_t, Values>& steps() const { return steps_; }

 private:
  void AddNumber(int64_t step, const std::string& name, double value);

  std::vector<std::string> names_;
  std::map<int64_t, Values> steps_;
  int64_t last_step_ = 0;
  int64_t attempt_ = 0;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_HISTORY_OWN_METRICS_H_
