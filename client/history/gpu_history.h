// The GPUs of a run's machine while the run trained: the node's telemetry, a second a line, as
// means over the run's steps. Pure.
#ifndef GPUCTL_CLIENT_HISTORY_GPU_HISTORY_H_
#define GPUCTL_CLIENT_HISTORY_GPU_HISTORY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "client/history/metric_history.h"
#include "client/metrics/progress.h"

namespace gpuctl {

class GpuHistory {
 public:
  static constexpr size_t kMaxGpus = 16;
  enum Number { kUtilization, kMemoryUsed, kPower, kTemperature, kNumbers };

  // The means from one step's end to the next one's, of each GPU; NaN where nothing is known.
  struct Group {
    int64_t step = 0;     // the step that was worked on
    int64_t time_ms = 0;  // of the last line
    std::vector<std::array<float, kNumbers>> gpus;
    // Returns the mean over all GPUs; nullopt when it is unknown.
    std::optional<double> Mean(Number number) const;
  };

  // Telemetry joins the run's steps by time. `history` must outlive this object. A history without
  // times joins nothing.
  explicit GpuHistory(const MetricHistory& history);

  // Takes the lines in order. Lines from before the first step's last minute and from after the
  // last step do not count: nobody knows that they are about the training.
  void Add(const TelemetrySample& sample);
  // Ends the last group.
  void Finish();
  // Returns the groups by step, ascending.
  const std::vector<Group>& groups() const { return groups_; }
  // Returns the utilization in percent while this point's step was worked on, as a mean over all
  // GPUs; nullopt when nothing of it is known.
  std::optional<double> UtilizationAt(const HistoryPoint& point) const;

 private:
  struct Sum {
    double sum = 0;
    int64_t count = 0;
  };
  void Begin(int64_t step);

  const std::vector<HistoryPoint>& points_;
  size_t next_ = 0;  // the first point that ends at or after the present line
  int64_t first_ms_ = 0, last_ms_ = 0;
  std::vector<Group> groups_;
  bool open_ = false;
  Group group_;
  std::vector<std::array<Sum, kNumbers>> sums_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_HISTORY_GPU_HISTORY_H_
