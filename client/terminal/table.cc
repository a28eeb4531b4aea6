#include "client/terminal/table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/terminal/line_assembler.h"
#include "client/terminal/safe_text.h"
#include "client/terminal/word_wrap.h"

namespace gpuctl {

namespace {

constexpr int kGap = 2;
// Least width of a cut last column, in characters; less would be useless.
constexpr int kLeastOfLast = 4;
// Least width of a last column that is broken between words.
constexpr int kLeastToWrap = 24;

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

// Removes columns of `least` until `last` columns of the last one have room. The new last column,
// when the original one was removed, needs room for all of it.
void DropColumns(std::vector<TableRow>& rows, int width, const std::vector<std::string>& least,
                 int last) {
  bool whole = false;
  for (const std::string& name : least) {
    const std::vector<int> widths = WidthsOf(rows);
    if (WidthWith(widths, whole ? widths.back() : last) <= width) return;
    const TableRow& header = rows.front();
    const auto column = std::find_if(header.begin(), header.end(),
                                     [&name](const Cell& cell) { return cell.text == name; }) -
                        header.begin();
    whole = whole || static_cast<size_t>(column) + 1 == header.size();
    for (TableRow& row : rows) {
      if (static_cast<size_t>(column) < row.size()) row.erase(row.begin() + column);
    }
  }
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
  DropColumns(rows, width, least, kLeastOfLast);
  std::string cut;
  for (const std::string& line : LinesOf(rows, colour)) {
    absl::StrAppend(&cut, TruncateToWidth(line, width), "\n");
  }
  return cut;
}

std::string FormatTableWrapped(std::vector<TableRow> rows, int width,
                               const std::vector<std::string>& least, bool colour) {
  MakeAllSafe(rows);
  DropColumns(rows, width, least, kLeastToWrap);
  const int before = WidthWith(WidthsOf(rows), 0);
  // Less room than this is used from the beginning of the next line on.
  const bool beside = width - before >= kLeastToWrap;
  const int indent = beside ? before : kGap;
  std::string text, above;
  std::vector<std::string> last;
  for (TableRow& row : rows) {
    std::string cell = std::exchange(row.back().text, "");
    if (DisplayWidth(cell) > width - before && cell == above) cell = "as above";
    if (cell != "as above") above = cell;
    last.push_back(std::move(cell));
  }
  const std::vector<std::string> lines = LinesOf(rows, colour);
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string line = lines[i];
    if (!beside && DisplayWidth(last[i]) > width - before) {
      absl::StrAppend(&text, TruncateToWidth(line, width), "\n");
      line = std::string(static_cast<size_t>(indent), ' ');
    } else {
      line.append(static_cast<size_t>(std::max(0, before - DisplayWidth(line))), ' ');
    }
    bool first = true;
    for (absl::string_view part : WrapAtWords(last[i], width - DisplayWidth(line), 0)) {
      // A word that is longer than a line, such as a path, goes on in the next one.
      do {
        if (!first) line = std::string(static_cast<size_t>(indent), ' ');
        first = false;
        const std::string piece = TruncateToWidth(part, std::max(1, width - indent));
        part.remove_prefix(std::min(part.size(), std::max<size_t>(1, piece.size())));
        line += piece;
        line.erase(line.find_last_not_of(' ') + 1);
        absl::StrAppend(&text, line, "\n");
      } while (!part.empty());
    }
  }
  return text;
}

std::string FormatPage(std::vector<TableRow> rows, int width) {
  MakeAllSafe(rows);
  const int before = WidthWith(WidthsOf(rows), 0);
  if (width - before < kLeastToWrap) return FormatTable(rows);
  std::vector<std::string> last;
  for (TableRow& row : rows) last.push_back(std::exchange(row.back().text, ""));
  std::vector<std::string> lines = LinesOf(rows, /*colour=*/false);
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string& line = lines[i];
    for (const std::string& part : WrapAtWords(last[i], width - before, 0)) {
      line.append(static_cast<size_t>(std::max(0, before - DisplayWidth(line))), ' ');
      absl::StrAppend(&text, line, part, "\n");
      line.clear();
    }
  }
  return text;
}

std::string Red(absl::string_view safe) { return absl::StrCat("\x1b[31m", safe, "\x1b[0m"); }

}  // namespace gpuctl
