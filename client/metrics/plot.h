// Draws curves with a terminal's characters. Pure.
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
  std::string name;               // safe for a terminal
  std::vector<PlotPoint> points;  // in any order; points that are not finite are ignored
};

// Returns one row of at most `width` bars, the newest at the right; a bar is a mean of `values`.
// Returns "" when no value is finite. `ascii` uses ASCII characters only.
std::string Sparkline(const std::vector<double>& values, int width, bool ascii);

// Returns a curve of at most `width` x `height` characters, with axes. A character shows 2 x 4 dots
// (Braille), or '*' with `ascii`. Several series share the axes: the sign of each, 1, 2, …, stands
// at its end and before its name in the legend below, which takes at most a quarter of the height
// and counts those that have no room in it. Returns nothing when no point is finite or the room is
// smaller than 20 x 4. With `log_y` equal factors are equally high, and points that are not above
// zero are ignored.
std::vector<std::string> Plot(const std::vector<PlotSeries>& series, absl::string_view x_label,
                              int width, int height, bool ascii, bool log_y = false);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_METRICS_PLOT_H_
