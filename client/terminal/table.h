// Formats text in columns, safe on a terminal. Pure.
#ifndef GPUCTL_CLIENT_TERMINAL_TABLE_H_
#define GPUCTL_CLIENT_TERMINAL_TABLE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace gpuctl {

// A cell with text of any origin. The Format functions make it safe as a line.
struct Cell {
  Cell(std::string the_text) : text(std::move(the_text)) {}  // NOLINT(google-explicit-constructor)
  Cell(const char* the_text) : text(the_text) {}             // NOLINT(google-explicit-constructor)
  Cell(absl::string_view the_text) : text(the_text) {}       // NOLINT(google-explicit-constructor)

  std::string text;
  bool red = false;  // where colours are shown
};
using TableRow = std::vector<Cell>;

// Returns left-aligned columns two spaces apart, the last one without padding; one line per row,
// with newlines.
std::string FormatTable(const std::vector<TableRow>& rows, bool colour = false);

// Returns the same with no line wider than `width` columns. Cuts the last column. Where nothing
// would be left of it, removes whole columns until the rest fits: those that `least` names by their
// header in the first row, in that order.
std::string FormatTableWithin(std::vector<TableRow> rows, int width,
                              const std::vector<std::string>& least, bool colour = false);

// Returns the same, but breaks the last column between words instead of cutting it, with what is
// left of it in lines below. Removes the columns of `least` until a readable part of the last
// column has room. A cell that would be broken and is the same as the one above it becomes "as
// above".
std::string FormatTableWrapped(std::vector<TableRow> rows, int width,
                               const std::vector<std::string>& least, bool colour = false);

// Returns rows of a name and a text, with the text broken between words. A word that is longer than
// a line, such as a path, stays whole: the terminal breaks it, and whoever copies it gets it whole.
std::string FormatPage(std::vector<TableRow> rows, int width);

// Returns `safe` in red.
std::string Red(absl::string_view safe);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TERMINAL_TABLE_H_
