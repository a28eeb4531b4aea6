#include "client/metrics/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/quantity.h"

namespace gpuctl {
namespace {

constexpr int kLabelWidth = 8;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  // Returns the cell of `value`, from 0 to `cells` - 1.
  int Cell(double value, int cells) const {
    if (!(high > low)) return (cells - 1) / 2;
    const double fraction = (value - low) / (high - low);
    return std::clamp(static_cast<int>(std::lround(fraction * (cells - 1))), 0, cells - 1);
  }
};

// Returns U+2800 + the bits of the dots, as UTF-8.
std::string Braille(unsigned dots) {
  const unsigned code = 0x2800 + dots;
  return {static_cast<char>(0xE0 | (code >> 12)), static_cast<char>(0x80 | ((code >> 6) & 0x3F)),
          static_cast<char>(0x80 | (code & 0x3F))};
}

// Returns the bit of the dot in column `x` (0, 1) and row `y` (0 at the top … 3).
unsigned DotBit(int x, int y) {
  constexpr unsigned kBits[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
  return kBits[x][y];
}

// The dots of a drawing and, in ASCII, their marks.
class Canvas {
 public:
  Canvas(int columns, int rows, bool ascii)
      : ascii_(ascii),
        width_(ascii ? columns : 2 * columns),
        height_(ascii ? rows : 4 * rows),
        marks_(static_cast<size_t>(width_) * static_cast<size_t>(height_), '\0') {}

  int width() const { return width_; }
  int height() const { return height_; }
  // Sets a dot; y counts from the bottom.
  void Set(int x, int y, char mark) { At(x, height_ - 1 - y) = mark; }

  // Draws from one point of a curve to the next, so that sparse points look like a line.
  void Line(int x0, int y0, int x1, int y1, char mark) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i) {
      Set(x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps, mark);
    }
  }

  std::string Row(int row) {
    std::string text;
    for (int column = 0; column < (ascii_ ? width_ : width_ / 2); ++column) {
      if (ascii_) {
        const char mark = At(column, row);
        text += mark == '\0' ? ' ' : mark;
        continue;
      }
      unsigned dots = 0;
      for (int x = 0; x < 2; ++x) {
        for (int y = 0; y < 4; ++y) {
          if (At(2 * column + x, 4 * row + y) != '\0') dots |= DotBit(x, y);
        }
      }
      text += dots == 0 ? " " : Braille(dots);
    }
    return text;
  }

 private:
  char& At(int x, int y) {
    return marks_[static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x)];
  }
  bool ascii_;
  int width_, height_;
  std::vector<char> marks_;
};

std::vector<PlotPoint> FinitePoints(const PlotSeries& series) {
  std::vector<PlotPoint> points;
  for (const PlotPoint& point : series.points) {
    if (std::isfinite(point.x) && std::isfinite(point.y)) points.push_back(point);
  }
  std::stable_sort(points.begin(), points.end(),
                   [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; });
  return points;
}

void DrawSeries(const std::vector<PlotPoint>& points, const Range& x, const Range& y, char mark,
                Canvas& canvas) {
  for (size_t i = 0; i < points.size(); ++i) {
    const int column = x.Cell(points[i].x, canvas.width());
    const int row = y.Cell(points[i].y, canvas.height());
    if (i == 0) {
      canvas.Set(column, row, mark);
      continue;
    }
    canvas.Line(x.Cell(points[i - 1].x, canvas.width()), y.Cell(points[i - 1].y, canvas.height()),
                column, row, mark);
  }
}

}  // namespace

std::string Sparkline(const std::vector<double>& values, int width, bool ascii) {
  static constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr const char* kAscii[] = {"_", ".", "-", "=", "+", "*", "#", "@"};
  std::vector<double> finite;
  for (const double value : values) {
    if (std::isfinite(value)) finite.push_back(value);
  }
  if (finite.empty() || width <= 0) return "";
  const size_t columns = std::min(finite.size(), static_cast<size_t>(width));
  std::vector<double> means;
  Range range;
  for (size_t i = 0; i < columns; ++i) {
    const size_t begin = finite.size() * i / columns, end = finite.size() * (i + 1) / columns;
    double sum = 0;
    for (size_t j = begin; j < end; ++j) sum += finite[j];
    means.push_back(sum / static_cast<double>(end - begin));
    range.Add(means.back());
  }
  std::string line;
  for (const double mean : means) line += (ascii ? kAscii : kBlocks)[range.Cell(mean, 8)];
  return line;
}

std::vector<std::string> Plot(const std::vector<PlotSeries>& series, absl::string_view x_label,
                              int width, int height, bool ascii) {
  if (width < 20 || height < 4) return {};
  Range x, y;
  std::vector<std::vector<PlotPoint>> all;
  for (const PlotSeries& one : series) {
    all.push_back(FinitePoints(one));
    for (const PlotPoint& point : all.back()) {
      x.Add(point.x);
      y.Add(point.y);
    }
  }
  if (x.empty()) return {};
  const bool legend = series.size() > 1;
  const int rows = height - 2 - (legend ? 1 : 0);
  const std::string high = FormatNumber(y.high), low = FormatNumber(y.low);
  const int label_width =
      static_cast<int>(std::max({size_t{kLabelWidth}, high.size(), low.size()}));
  const int columns = width - label_width - 2;
  Canvas canvas(columns, rows, ascii);
  for (size_t i = 0; i < all.size(); ++i) {
    const char mark = legend ? static_cast<char>('1' + static_cast<int>(i % 9)) : '*';
    DrawSeries(all[i], x, y, mark, canvas);
  }
  std::vector<std::string> lines;
  for (int row = 0; row < rows; ++row) {
    const std::string text = row == 0 ? high : row == rows - 1 ? low : "";
    lines.push_back(
        absl::StrFormat("%*s %s%s", label_width, text, ascii ? "|" : "┤", canvas.Row(row)));
  }
  std::string axis(static_cast<size_t>(label_width) + 1, ' ');
  axis += ascii ? "+" : "└";
  for (int i = 0; i < columns; ++i) axis += ascii ? "-" : "─";
  lines.push_back(axis);
  const std::string left = FormatNumber(x.low);
  const std::string right = absl::StrCat(FormatNumber(x.high), " ", x_label);
  const int gap = std::max(1, columns - static_cast<int>(left.size() + right.size()));
  lines.push_back(absl::StrCat(std::string(static_cast<size_t>(label_width) + 2, ' '), left,
                               std::string(static_cast<size_t>(gap), ' '), right));
  if (legend) {
    std::string names(static_cast<size_t>(label_width) + 2, ' ');
    for (size_t i = 0; i < series.size(); ++i) {
      absl::StrAppend(&names, i == 0 ? "" : "  ", ascii ? absl::StrCat(i % 9 + 1, " ") : "",
                      series[i].name);
    }
    lines.push_back(names);
  }
  return lines;
}

}  // namespace gpuctl
