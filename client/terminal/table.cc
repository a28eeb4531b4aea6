#include "client/terminal/table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/terminal/line_assembler.h"

namespace gpuctl {

namespace {

constexpr int kGap = 2;
// Less of a column that is cut says nothing.
constexpr int kLeastOfLast = 4;

std::vector<int> WidthsOf(const std::vector<std::vector<std::string>>& rows) {
  std::vector<int> widths;
  for (const std::vector<std::string>& row : rows) {
    if (widths.size() < row.size()) widths.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i]));
  }
  return widths;
}

// With only `last` of the last column.
int WidthWith(const std::vector<int>& widths, int last) {
  int sum = 0;
  for (size_t i = 0; i + 1 < widths.size(); ++i) sum += widths[i] + kGap;
  return widths.empty() ? 0 : sum + std::min(last, widths.back());
}

}  // namespace

std::string FormatTable(const std::vector<std::vector<std::string>>& rows) {
  const std::vector<int> widths = WidthsOf(rows);
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 == row.size()) break;
      line.append(static_cast<size_t>(widths[i] + kGap - DisplayWidth(row[i])), ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string FormatTableWithin(std::vector<std::vector<std::string>> rows, int width,
                              const std::vector<std::string>& least) {
  bool whole = false;  // the last column may not be cut: it is not the one that was
  for (const std::string& name : least) {
    const std::vector<int> widths = WidthsOf(rows);
    if (WidthWith(widths, whole ? widths.back() : kLeastOfLast) <= width) break;
    const std::vector<std::string>& header = rows.front();
    const auto column = std::find(header.begin(), header.end(), name) - header.begin();
    whole = whole || static_cast<size_t>(column) + 1 == header.size();
    for (std::vector<std::string>& row : rows) {
      if (static_cast<size_t>(column) < row.size()) row.erase(row.begin() + column);
    }
  }
  std::string cut;
  LineAssembler lines;
  lines.Add(FormatTable(rows), [&](absl::string_view line) {
    absl::StrAppend(&cut, TruncateToWidth(line, width), "\n");
  });
  return cut;
}

}  // namespace gpuctl
