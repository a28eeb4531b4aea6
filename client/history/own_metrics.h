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

// One of these numbers; its name is the job's own text.
struct OwnNumber {
  std::string name;
  double value = 0;
};

// The last value of each name, without the steps before: cheap enough for what is shown while a job
// runs.
class NewestOwn {
 public:
  // Takes the next line of metrics.jsonl, in the job's order. Lines about a checkpoint have no
  // numbers of the training. Of further names than OwnMetrics::kMostNames none is taken.
  void Add(absl::string_view line);
  // Returns at most `most`, those first that were written last.
  std::vector<OwnNumber> Newest(size_t most = OwnMetrics::kMostNames) const;
  // Does so without what a trainer only counts, such as its tokens: for places with little room.
  std::vector<OwnNumber> NewestMeasured(size_t most) const;
  // Returns how many lines had such numbers: when it is the same, so are they.
  int64_t lines() const { return lines_; }

 private:
  struct Seen {
    OwnNumber number;
    int64_t line = 0;
  };
  std::vector<Seen> seen_;
  int64_t lines_ = 0;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_HISTORY_OWN_METRICS_H_
