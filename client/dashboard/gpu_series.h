// What a run's machine measured, over time, thin enough to draw. Pure.
#ifndef GPUCTL_CLIENT_DASHBOARD_GPU_SERIES_H_
#define GPUCTL_CLIENT_DASHBOARD_GPU_SERIES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "client/metrics/progress.h"

namespace gpuctl {

// Means over a while and over the machine's GPUs; the temperature is that of the hottest, memory
// and power are sums. Absent where nothing is known.
struct GpuPoint {
  int64_t time_ms = 0;  // of its first line
  std::optional<double> utilization_percent, memory_percent, power_w, temperature_c;
};

class GpuSeries {
 public:
  // Longer series are thinned to half of their points.
  static constexpr size_t kMostPoints = 2000;

  // Takes the lines of telemetry in order; a line that is older than the one before is left out.
  void Add(const TelemetrySample& sample);

  const std::vector<GpuPoint>& points() const { return points_; }
  // Returns the index of the first point that may be other than at the last call; the number of
  // points when none is.
  size_t TakeChanged();

 private:
  struct Sum {
    double sum = 0;
    int64_t count = 0;
    void Add(const std::optional<double>& value);
    std::optional<double> Mean() const;
  };
  void Thin();

  std::vector<GpuPoint> points_;
  int64_t lines_each_ = 1;  // in a point
  int64_t lines_ = 0;       // in the last one
  int64_t last_ms_ = 0;
  Sum utilization_, memory_, power_;  // of the last one
  size_t changed_ = 0;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_DASHBOARD_GPU_SERIES_H_
