// Draws the curves of several runs as an SVG file. Pure.
#ifndef GPUCTL_CLIENT_HISTORY_SVG_CHART_H_
#define GPUCTL_CLIENT_HISTORY_SVG_CHART_H_

#include <optional>
#include <string>
#include <vector>

#include "client/metrics/plot.h"

namespace gpuctl {

// One number of all runs, over the same axis as the other charts.
struct SvgChart {
  std::string title;
  int height = 120;
  // Draws a smoothed line over a pale one of the values as they are.
  bool smoothed = false;
  // The range of the values where it is known; else that of the values. Single values that are far
  // above all others are left out then, and the title says how many.
  std::optional<double> low, high;
  std::vector<std::vector<PlotPoint>> curves;   // of each run, ascending by x
  std::vector<std::vector<PlotPoint>> circles;  // the same, drawn as circles on a broken line
  // On an axis of powers of ten. Values that are not above zero have no place there, and the title
  // says how many they are.
  bool logarithmic = false;
  bool empty() const;  // true when no value is finite
};

// Returns a document of 960 pixels' width: a legend, and the charts that are not empty below each
// other. Values that are not finite are marked with a cross. Returns "" when all charts are empty.
// `names` are the runs' names; they and the titles are UTF-8 without control characters.
std::string FormatSvg(const std::vector<std::string>& names, const std::vector<SvgChart>& charts,
                      const std::string& x_label);

// Returns the means of each point and its neighbours, over about a fiftieth of their number; nearer
// ones weigh more. A value that is not finite is left out.
std::vector<PlotPoint> Smoothed(const std::vector<PlotPoint>& points);

// Returns round numbers within `low` to `high`, about `count` of them.
std::vector<double> RoundTicks(double low, double high, int count);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_HISTORY_SVG_CHART_H_
