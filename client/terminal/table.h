// Columns of text that is safe on a terminal. Pure.
#ifndef GPUCTL_CLIENT_TERMINAL_TABLE_H_
#define GPUCTL_CLIENT_TERMINAL_TABLE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace gpuctl {

// Text of any origin: it is made safe as a line when it enters a table.
struct Cell {
  Cell(std::string the_text) : text(std::move(the_text)) {}  // NOLINT(google-explicit-constructor)
  Cell(const char* the_text) : text(the_text) {}             // NOLINT(google-explicit-constructor)
  Cell(absl::string_view the_text) : text(the_text) {}       // NOLINT(google-explicit-constructor)

  std::string text;
  bool red = false;  // where colours are shown
};
using TableRow = std::vector<Cell>;

// Left-aligned columns two spaces apart, the last one as it is; one line per row, with newlines.
std::string FormatTable(const std::vector<TableRow>& rows, bool colour = false);

// The same for a terminal of that many columns: no line is wider. The last column is cut, and where
// nothing would be left of it, whole columns go, those that `least` names in the first row, in that
// order, until the rest fits.
std::string FormatTableWithin(std::vector<TableRow> rows, int width,
                              const std::vector<std::string>& least, bool colour = false);

// `safe` in red.
std::string Red(absl::string_view safe);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TERMINAL_TABLE_H_
