#include "client/terminal/table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/terminal/line_assembler.h"
#include "client/terminal/safe_text.h"

namespace gpuctl {

namespace {

constexpr int kGap = 2;
// Least width of a cut last column, in characters; less would be useless.
constexpr int kLeastOfLast = 4;

void MakeAllSafe(std::vector<TableRow>& rows) {
  for (TableRow& row : rows) {
    for (Cell& cell : row) cell.text = MakeSafe(cell.text);
  }
}

std::vector<int> WidthsOf(const std::vector<TableRow>& rows) {
  std::vector<int> widths;
  for (const TableRow& row : rows) {
    if (widths.size() < row.size()) widths.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], DisplayWidth(row[i].text));
    }
  }
  return widths;
}

// Returns the table's width with at most `last` of the last column.
int WidthWith(const std::vector<int>& widths, int last) {
  int sum = 0;
  for (size_t i = 0; i + 1 < widths.size(); ++i) sum += widths[i] + kGap;
  return widths.empty() ? 0 : sum + std::min(last, widths.back());
}

// Returns the lines of rows whose cells are safe.
std::vector<std::string> LinesOf(const std::vector<TableRow>& rows, bool colour) {
  const std::vector<int> widths = WidthsOf(rows);
  std::vector<std::string> lines;
  for (const TableRow& row : rows) {
    std::string& line = lines.emplace_back();
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string& text = row[i].text;
      line += row[i].red && colour && !text.empty() ? Red(text) : text;
      if (i + 1 == row.size()) break;
      line.append(static_cast<size_t>(widths[i] + kGap - DisplayWidth(text)), ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
  }
  return lines;
}

}  // namespace

std::string FormatTable(const std::vector<TableRow>& rows, bool colour) {
  std::vector<TableRow> safe = rows;
  MakeAllSafe(safe);
  std::string text;
  for (const std::string& line : LinesOf(safe, colour)) absl::StrAppend(&text, line, "\n");
  return text;
}

std::string FormatTableWithin(std::vector<TableRow> rows, int width,
                              const std::vector<std::string>& least, bool colour) {
  MakeAllSafe(rows);
  bool whole = false;  // the original last column was removed, so the new one may not be cut
  for (const std::string& name : least) {
    const std::vector<int> widths = WidthsOf(rows);
    if (WidthWith(widths, whole ? widths.back() : kLeastOfLast) <= width) break;
    const TableRow& header = rows.front();
    const auto column = std::find_if(header.begin(), header.end(),
                                     [&name](const Cell& cell) { return cell.text == name; }) -
                        header.begin();
    whole = whole || static_cast<size_t>(column) + 1 == header.size();
    for (TableRow& row : rows) {
      if (static_cast<size_t>(column) < row.size()) row.erase(row.begin() + column);
    }
  }
  std::string cut;
  for (const std::string& line : LinesOf(rows, colour)) {
    absl::StrAppend(&cut, TruncateToWidth(line, width), "\n");
  }
  return cut;
}

std::string Red(absl::string_view safe) { return absl::StrCat("\x1b[31m", safe, "\x1b[0m"); }

}  // namespace gpuctl
