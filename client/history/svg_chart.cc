#include "client/history/svg_chart.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace gpuctl {
namespace {

constexpr double kWidth = 960, kLeft = 76, kRight = 24, kTop = 20;
constexpr double kLegendRow = 22, kTitle = 26, kTicks = 22, kGap = 14, kXLabel = 20;
constexpr double kLetter = 7.6;  // about the width of a letter of 13 pixels
constexpr size_t kColumns = 800;
constexpr size_t kFewPoints = 30;
constexpr int kMaxCrosses = 50;
constexpr double kFarAbove = 20;  // times the range of nearly all values
// Colours that people who see fewer colours can tell apart.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                    "#e69f00", "#56b4e9", "#000000", "#7a5c00"};
constexpr const char* kDashes[] = {"", "7 3", "2 3"};

const char* ColourOf(size_t run) { return kColours[run % std::size(kColours)]; }
std::string DashOf(size_t run) {
  const char* const dash = kDashes[run / std::size(kColours) % std::size(kDashes)];
  return *dash == '\0' ? "" : absl::StrCat(" stroke-dasharray=\"", dash, "\"");
}

std::string Escape(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

// Numbers so large that their differences may not be finite are drawn as if they were not either.
bool IsFinite(double value) { return std::fabs(value) < 1e300; }
bool IsFinite(const PlotPoint& point) { return IsFinite(point.x) && IsFinite(point.y); }

std::string Pixel(double value) { return absl::StrFormat("%.1f", value); }

std::string Text(double x, double y, absl::string_view more, absl::string_view text) {
  return absl::StrCat("<text x=\"", Pixel(x), "\" y=\"", Pixel(y), "\"", more, ">", Escape(text),
                      "</text>\n");
}

// Returns the number with as many places as the distance of the ticks needs.
std::string TickLabel(double value, double distance) {
  const double largest = std::max(std::fabs(value), distance);
  if (largest >= 1e7 || distance < 1e-5) return absl::StrFormat("%.3g", value);
  const int places = std::max(0, static_cast<int>(-std::floor(std::log10(distance) + 1e-9)));
  const std::string text = absl::StrFormat("%.*f", places, value);
  return text.find_first_not_of("-0.") == std::string::npos ? "0" : text;
}

struct Span {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void Add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  // Makes room around a single value.
  void Widen() {
    if (high > low) return;
    const double room = low == 0 ? 1 : std::fabs(low) * 0.05;
    low -= room;
    high += room;
  }
  double Part(double value) const { return value / (high - low) - low / (high - low); }
};

template <typename Function>
void ForEachPoint(const SvgChart& chart, const Function& function) {
  for (const auto* const all : {&chart.curves, &chart.circles}) {
    for (const std::vector<PlotPoint>& points : *all) {
      for (const PlotPoint& point : points) {
        if (IsFinite(point.x)) function(point);
      }
    }
  }
}

// Returns the chart with the logarithms of its values.
SvgChart LogarithmOf(SvgChart chart) {
  int below = 0;
  for (auto* const all : {&chart.curves, &chart.circles}) {
    for (std::vector<PlotPoint>& points : *all) {
      std::vector<PlotPoint> drawn;
      for (const PlotPoint& point : points) {
        if (!IsFinite(point)) {
          drawn.push_back(point);
        } else if (point.y > 0) {
          drawn.push_back({point.x, std::log10(point.y)});
        } else {
          ++below;
        }
      }
      points = std::move(drawn);
    }
  }
  absl::StrAppend(&chart.title, ", logarithmic");
  if (below > 0) {
    absl::StrAppend(&chart.title, " (", below, below == 1 ? " value" : " values",
                    " not above 0 left out)");
  }
  chart.low = chart.high = std::nullopt;
  return chart;
}

// Returns places, as logarithms, of round numbers.
std::vector<double> LogTicks(double low, double high) {
  std::vector<double> ticks;
  if (high - low < 1) {
    for (const double tick : RoundTicks(std::pow(10, low), std::pow(10, high), 5)) {
      if (tick > 0) ticks.push_back(std::log10(tick));
    }
    return ticks;
  }
  const int step = std::max(1, static_cast<int>((high - low) / 6));
  for (double power = std::ceil(low - 1); power <= high; power += step) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = power + std::log10(factor);
      // With many powers of ten these alone have room.
      if (tick >= low && tick <= high && (factor == 1 || high - low < 2.5)) ticks.push_back(tick);
    }
  }
  return ticks;
}

// Returns the range of a chart's values, and sets the number of values that are far above.
Span ValuesOf(const SvgChart& chart, int& left_out) {
  std::vector<double> values;
  ForEachPoint(chart, [&values](const PlotPoint& point) {
    if (IsFinite(point.y)) values.push_back(point.y);
  });
  std::sort(values.begin(), values.end());
  Span span;
  span.Add(values.front());
  span.Add(values.back());
  // A training begins with large values, and these are no spikes.
  const double usual = values[(values.size() - 1) * 97 / 100];
  const double most = span.low + kFarAbove * (usual - span.low);
  if (!chart.logarithmic && values.size() > kFewPoints && usual > span.low && span.high > most) {
    const auto first_left_out = std::upper_bound(values.begin(), values.end(), most);
    span.high = *(first_left_out - 1);
    left_out = static_cast<int>(values.end() - first_left_out);
  }
  span.Widen();
  const double room = 0.04 * (span.high - span.low);
  // A loss is not drawn below zero because of the room.
  const bool from_zero = span.low >= 0 && !chart.logarithmic;
  span.low = from_zero ? std::max(0.0, span.low - room) : span.low - room;
  span.high += room;
  if (chart.low.has_value()) span.low = *chart.low;
  if (chart.high.has_value()) span.high = *chart.high;
  span.Widen();
  return span;
}

// Draws one chart at a place on the page.
class ChartDrawer {
 public:
  ChartDrawer(const SvgChart& chart, const Span& x, double top, size_t number)
      : chart_(chart),
        x_(x),
        top_(top + kTitle),
        bottom_(top_ + chart.height),
        clip_(absl::StrCat("chart", number)) {
    y_ = ValuesOf(chart, left_out_);
  }

  std::string Draw() {
    DrawAxes();
    absl::StrAppend(&out_, "<g clip-path=\"url(#", clip_, ")\" fill=\"none\">\n");
    for (size_t run = 0; run < chart_.curves.size(); ++run) DrawCurve(run);
    for (size_t run = 0; run < chart_.circles.size(); ++run) DrawCircles(run);
    DrawCrosses();
    absl::StrAppend(&out_, "</g>\n");
    return std::move(out_);
  }

 private:
  double X(double value) const { return kLeft + x_.Part(value) * (kWidth - kLeft - kRight); }
  double Y(double value) const {
    const double y = bottom_ - y_.Part(value) * (bottom_ - top_);
    return std::clamp(y, top_ - 10'000, bottom_ + 10'000);
  }

  void DrawAxes() {
    std::string title = chart_.title;
    if (left_out_ > 0) {
      absl::StrAppend(&title, " (", left_out_, left_out_ == 1 ? " value" : " values",
                      " far above left out)");
    }
    absl::StrAppend(&out_, Text(kLeft, top_ - 8, " font-weight=\"bold\"", title));
    absl::StrAppend(&out_, "<clipPath id=\"", clip_, "\"><rect x=\"", Pixel(kLeft), "\" y=\"",
                    Pixel(top_ - 2), "\" width=\"", Pixel(kWidth - kLeft - kRight), "\" height=\"",
                    Pixel(bottom_ - top_ + 4), "\"/></clipPath>\n");
    const std::vector<double> rows =
        chart_.logarithmic ? LogTicks(y_.low, y_.high)
                           : RoundTicks(y_.low, y_.high, chart_.height >= 200 ? 6 : 3);
    const double distance = rows.size() > 1 ? rows[1] - rows[0] : std::fabs(y_.high - y_.low);
    for (const double value : rows) {
      Line(kLeft, Y(value), kWidth - kRight, Y(value), "#e4e4e4");
      absl::StrAppend(&out_, Text(kLeft - 8, Y(value) + 4, " text-anchor=\"end\" fill=\"#555\"",
                                  chart_.logarithmic ? absl::StrFormat("%.4g", std::pow(10, value))
                                                     : TickLabel(value, distance)));
    }
    const std::vector<double> columns = RoundTicks(x_.low, x_.high, 8);
    const double width = columns.size() > 1 ? columns[1] - columns[0] : 1;
    for (const double value : columns) {
      Line(X(value), bottom_, X(value), bottom_ + 4, "#888");
      absl::StrAppend(&out_, Text(X(value), bottom_ + 17, " text-anchor=\"middle\" fill=\"#555\"",
                                  TickLabel(value, width)));
    }
    Line(kLeft, bottom_, kWidth - kRight, bottom_, "#888");
    Line(kLeft, top_, kLeft, bottom_, "#888");
  }

  void Line(double x0, double y0, double x1, double y1, const char* colour) {
    absl::StrAppend(&out_, "<line x1=\"", Pixel(x0), "\" y1=\"", Pixel(y0), "\" x2=\"", Pixel(x1),
                    "\" y2=\"", Pixel(y1), "\" stroke=\"", colour, "\"/>\n");
  }

  // Draws a line through the points. Of many points in one column of pixels it takes the first, the
  // lowest, the highest and the last, which look the same.
  void Path(const std::vector<PlotPoint>& points, absl::string_view style) {
    std::string path;
    bool begin = true;
    for (size_t i = 0; i < points.size();) {
      if (!IsFinite(points[i])) {
        begin = true;
        ++i;
        continue;
      }
      const auto column = static_cast<int64_t>(X(points[i].x));
      size_t end = i + 1, low = i, high = i;
      for (; end < points.size() && IsFinite(points[end]) && points.size() > kColumns &&
             static_cast<int64_t>(X(points[end].x)) == column;
           ++end) {
        if (points[end].y < points[low].y) low = end;
        if (points[end].y > points[high].y) high = end;
      }
      size_t shown[] = {i, std::min(low, high), std::max(low, high), end - 1};
      const size_t* const last = std::unique(std::begin(shown), std::end(shown));
      for (const size_t* at = shown; at != last; ++at) {
        absl::StrAppend(&path, begin ? "M" : "L", Pixel(X(points[*at].x)), " ",
                        Pixel(Y(points[*at].y)));
        begin = false;
      }
      i = end;
    }
    if (path.empty()) return;
    absl::StrAppend(&out_, "<path d=\"", path, "\" stroke-linejoin=\"round\" ", style, "/>\n");
  }

  void DrawCurve(size_t run) {
    const std::vector<PlotPoint>& points = chart_.curves[run];
    const std::string stroke = absl::StrCat("stroke=\"", ColourOf(run), "\"", DashOf(run));
    const bool smooth = chart_.smoothed && points.size() > kFewPoints;
    Path(points, absl::StrCat(stroke, smooth ? " stroke-opacity=\"0.28\"" : " stroke-width=\"1.8\"",
                              " stroke-linecap=\"round\""));
    if (!smooth) return;
    std::vector<PlotPoint> shown;
    for (const PlotPoint& point : points) {
      if (left_out_ == 0 || point.y <= y_.high) shown.push_back(point);
    }
    Path(Smoothed(shown), absl::StrCat(stroke, " stroke-width=\"2.2\""));
  }

  void DrawCircles(size_t run) {
    const std::vector<PlotPoint>& points = chart_.circles[run];
    Path(points, absl::StrCat("stroke=\"", ColourOf(run), "\" stroke-dasharray=\"4 3\""));
    if (points.size() > kColumns / 4) return;  // they would hide each other
    for (const PlotPoint& point : points) {
      if (!IsFinite(point)) continue;
      absl::StrAppend(&out_, "<circle cx=\"", Pixel(X(point.x)), "\" cy=\"", Pixel(Y(point.y)),
                      "\" r=\"3.2\" fill=\"#fff\" stroke=\"", ColourOf(run),
                      "\" stroke-width=\"1.6\"/>\n");
    }
  }

  // Marks the places of values that are not finite, at the upper edge.
  void DrawCrosses() {
    int crosses = 0;
    ForEachPoint(chart_, [&](const PlotPoint& point) {
      if (IsFinite(point.y) || ++crosses > kMaxCrosses) return;
      const double x = X(point.x), y = top_ + 6;
      absl::StrAppend(&out_, "<path d=\"M", Pixel(x - 4), " ", Pixel(y - 4), "l8 8m0 -8l-8 8\" ",
                      "stroke=\"#c00\" stroke-width=\"2\"/>\n");
    });
  }

  const SvgChart& chart_;
  const Span& x_;
  double top_, bottom_;
  std::string clip_, out_;
  int left_out_ = 0;
  Span y_;
};

// Returns what the kinds of lines mean, as far as they occur.
std::string Explanation(const std::vector<SvgChart>& charts) {
  bool smooth = false, circles = false, crosses = false;
  for (const SvgChart& chart : charts) {
    for (const auto& points : chart.curves) {
      smooth = smooth || (chart.smoothed && points.size() > kFewPoints);
    }
    for (const auto& points : chart.circles) circles = circles || !points.empty();
    ForEachPoint(chart, [&](const PlotPoint& point) { crosses = crosses || !IsFinite(point.y); });
  }
  std::vector<std::string> parts;
  std::string text;
  for (const auto& [occurs, meaning] : {std::pair(smooth, "pale: as measured, strong: smoothed"),
                                        std::pair(circles, "circles: held-out data"),
                                        std::pair(crosses, "red cross: not finite")}) {
    if (occurs) absl::StrAppend(&text, text.empty() ? "" : "; ", meaning);
  }
  return text;
}

// Draws the legend and returns where it ends.
double DrawLegend(const std::vector<std::string>& names, const std::vector<SvgChart>& charts,
                  std::string& out) {
  double x = kLeft, y = kTop;
  for (size_t run = 0; run < names.size(); ++run) {
    const double width = 46 + kLetter * static_cast<double>(names[run].size());
    if (x + width > kWidth - kRight && x > kLeft) {
      x = kLeft;
      y += kLegendRow;
    }
    absl::StrAppend(&out, "<line x1=\"", Pixel(x), "\" y1=\"", Pixel(y), "\" x2=\"", Pixel(x + 24),
                    "\" y2=\"", Pixel(y), "\" stroke=\"", ColourOf(run), "\" stroke-width=\"2.5\"",
                    DashOf(run), "/>\n", Text(x + 30, y + 4, "", names[run]));
    x += width;
  }
  if (const std::string text = Explanation(charts); !text.empty()) {
    y += kLegendRow;
    absl::StrAppend(&out, Text(kLeft, y + 4, " fill=\"#555\" font-size=\"12\"", text));
  }
  return y + kLegendRow / 2;
}

}  // namespace

bool SvgChart::empty() const {
  bool any = false;
  ForEachPoint(*this, [&any](const PlotPoint& point) { any = any || IsFinite(point.y); });
  return !any;
}

std::vector<PlotPoint> Smoothed(const std::vector<PlotPoint>& points) {
  // The weight of all values before a new one, as if there were so many of the same weight.
  const double window = std::max(5.0, static_cast<double>(points.size()) / 50);
  const double keep = 1 - 2 / (window + 1);
  std::vector<PlotPoint> finite;
  for (const PlotPoint& point : points) {
    if (IsFinite(point)) finite.push_back(point);
  }
  // The mean of what comes before and of what comes after: else the curve would lag behind.
  std::vector<PlotPoint> smoothed = finite;
  for (const bool backwards : {false, true}) {
    double mean = 0, weight = 0;
    for (size_t n = 0; n < finite.size(); ++n) {
      const size_t i = backwards ? finite.size() - 1 - n : n;
      mean = keep * mean + (1 - keep) * finite[i].y;
      weight = keep * weight + (1 - keep);  // else the first values would count as zeros
      smoothed[i].y = backwards ? smoothed[i].y / 2 + mean / weight / 2 : mean / weight;
    }
  }
  return smoothed;
}

std::vector<double> RoundTicks(double low, double high, int count) {
  if (!(high > low) || !std::isfinite(high / 2 - low / 2)) return {low};
  const double rough = (high / count - low / count);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double distance = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * 0.8) {
      distance = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  const double first = std::ceil(low / distance - 1e-9);
  for (int i = 0; i <= 2 * count + 2; ++i) {
    const double tick = (first + i) * distance;
    if (!std::isfinite(tick) || tick > high + distance * 1e-9) break;
    ticks.push_back(tick);
  }
  return ticks;
}

std::string FormatSvg(const std::vector<std::string>& names, const std::vector<SvgChart>& given,
                      const std::string& x_label) {
  std::vector<SvgChart> charts;
  for (const SvgChart& chart : given) {
    charts.push_back(chart.logarithmic ? LogarithmOf(chart) : chart);
  }
  Span x;
  for (const SvgChart& chart : charts) {
    if (chart.empty()) continue;
    ForEachPoint(chart, [&x](const PlotPoint& point) { x.Add(point.x); });
  }
  if (x.empty()) return "";
  x.Widen();
  std::string body;
  double y = DrawLegend(names, charts, body);
  size_t number = 0;
  for (const SvgChart& chart : charts) {
    if (chart.empty()) continue;
    absl::StrAppend(&body, ChartDrawer(chart, x, y, number++).Draw());
    y += kTitle + chart.height + kTicks + kGap;
  }
  absl::StrAppend(&body, Text((kLeft + kWidth - kRight) / 2, y,
                              " text-anchor=\"middle\" fill=\"#555\"", x_label));
  y += kXLabel;
  return absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
      "viewBox=\"0 0 %.0f %.0f\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n%s</svg>\n",
      kWidth, y, kWidth, y, body);
}

}  // namespace gpuctl
