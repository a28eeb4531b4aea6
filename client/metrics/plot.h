// Curves in a terminal's characters. Pure.
#ifndef GPUCTL_CLIENT_METRICS_PLOT_H_
#define GPUCTL_CLIENT_METRICS_PLOT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gpuctl {

struct PlotPoint {
  double x = 0;
  double y = 0;
};

struct PlotSeries {
  std::string name;
  std::vector<PlotPoint> points;  // any order; those that are not finite are left out
};

// One row of bars, the newest `width` means of `values` at the right; "" for no finite value.
// `ascii` keeps to ASCII characters.
std::string Sparkline(const std::vector<double>& values, int width, bool ascii);

// A curve of `width` x `height` characters at most, axes and legend included: dots of 2 x 4 in a
// character (Braille), or '*' with `ascii`. Several series share the axes and are marked 1, 2, … in
// ASCII. Empty when there is no finite point or no room (20 x 4).
std::vector<std::string> Plot(const std::vector<PlotSeries>& series, absl::string_view x_label,
                              int width, int height, bool ascii);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_METRICS_PLOT_H_
