#include "client/metrics/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

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

  // Writes `mark` over the first dot that has none over it yet, from the last of `dots` on.
  void Name(const std::vector<std::pair<int, int>>& dots, char mark) {
    for (auto dot = dots.rbegin(); dot != dots.rend(); ++dot) {
      const int x = dot->first, y = height_ - 1 - dot->second;
      if (names_.emplace(ascii_ ? std::pair(x, y) : std::pair(x / 2, y / 4), mark).second) return;
    }
  }

  std::string Row(int row) {
    std::string text;
    for (int column = 0; column < (ascii_ ? width_ : width_ / 2); ++column) {
      if (const auto name = names_.find({column, row}); name != names_.end()) {
        text += name->second;
        continue;
      }
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
  std::map<std::pair<int, int>, char> names_;  // by column and row
};

// Returns the sign of a curve among several.
char MarkOf(size_t index) {
  constexpr absl::string_view kMarks = "123456789abcdefghijklmnopqrstuvwxyz";
  return kMarks[index % kMarks.size()];
}

// Returns the lines "1 NAME  2 NAME", at most `most` of them, within `width` where a name has room.
std::vector<std::string> Legend(const std::vector<PlotSeries>& series, size_t width, size_t most) {
  std::vector<std::string> lines(1);
  for (size_t i = 0; i < series.size(); ++i) {
    const std::string entry = absl::StrCat(std::string(1, MarkOf(i)), " ", series[i].name);
    const std::string more = absl::StrCat("and ", series.size() - i, " more");
    const bool is_last = i + 1 == series.size();
    // The last line keeps room for the word that some are not named.
    const size_t room = lines.size() < most || is_last ? width : width - more.size() - 2;
    if (!lines.back().empty() && lines.back().size() + 2 + entry.size() > room) {
      if (lines.size() == most) {
        absl::StrAppend(&lines.back(), "  ", more);
        return lines;
      }
      lines.emplace_back();
    }
    absl::StrAppend(&lines.back(), lines.back().empty() ? "" : "  ", entry);
  }
  return lines;
}

// Returns the points that can be drawn; with `log_y` their logarithms.
std::vector<PlotPoint> FinitePoints(const PlotSeries& series, bool log_y) {
  std::vector<PlotPoint> points;
  for (const PlotPoint& point : series.points) {
    if (!std::isfinite(point.x) || !std::isfinite(point.y) || (log_y && point.y <= 0)) continue;
    points.push_back({point.x, log_y ? std::log10(point.y) : point.y});
  }
  std::stable_sort(points.begin(), points.end(),
                   [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; });
  return points;
}

// Returns the dots of the points.
std::vector<std::pair<int, int>> DrawSeries(const std::vector<PlotPoint>& points, const Range& x,
                                            const Range& y, char mark, Canvas& canvas) {
  std::vector<std::pair<int, int>> dots;
  for (const PlotPoint& point : points) {
    const std::pair<int, int> dot(x.Cell(point.x, canvas.width()),
                                  y.Cell(point.y, canvas.height()));
    const std::pair<int, int> before = dots.empty() ? dot : dots.back();
    canvas.Line(before.first, before.second, dot.first, dot.second, mark);
    dots.push_back(dot);
  }
  return dots;
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
                              int width, int height, bool ascii, bool log_y) {
  if (width < 20 || height < 4) return {};
  Range x, y;
  std::vector<std::vector<PlotPoint>> all;
  for (const PlotSeries& one : series) {
    all.push_back(FinitePoints(one, log_y));
    for (const PlotPoint& point : all.back()) {
      x.Add(point.x);
      y.Add(point.y);
    }
  }
  if (x.empty()) return {};
  const bool several = series.size() > 1;
  const auto label = [log_y](double at) { return FormatNumber(log_y ? std::pow(10.0, at) : at); };
  const std::string high = label(y.high), low = label(y.low);
  // Between the two nobody can guess what a height on a logarithmic axis means.
  const std::string middle = log_y ? label((y.high + y.low) / 2) : "";
  const int label_width =
      static_cast<int>(std::max({size_t{kLabelWidth}, high.size(), low.size(), middle.size()}));
  const int columns = width - label_width - 2;
  const std::vector<std::string> legend =
      several ? Legend(series, static_cast<size_t>(columns), static_cast<size_t>(height / 4))
              : std::vector<std::string>();
  const int rows = height - 2 - static_cast<int>(legend.size());
  Canvas canvas(columns, rows, ascii);
  for (size_t i = 0; i < all.size(); ++i) {
    const auto dots = DrawSeries(all[i], x, y, several ? MarkOf(i) : '*', canvas);
    if (several) canvas.Name(dots, MarkOf(i));
  }
  std::vector<std::string> lines;
  for (int row = 0; row < rows; ++row) {
    const std::string text = row == 0          ? high
                             : row == rows - 1 ? low
                             : row == rows / 2 ? middle
                                               : "";
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
  for (const std::string& names : legend) {
    lines.push_back(absl::StrCat(std::string(static_cast<size_t>(label_width) + 2, ' '), names));
  }
  return lines;
}

}  // namespace gpuctl
