// Columns of text. Pure.
#ifndef GPUCTL_CLIENT_TERMINAL_TABLE_H_
#define GPUCTL_CLIENT_TERMINAL_TABLE_H_

#include <string>
#include <vector>

namespace gpuctl {

// Left-aligned columns two spaces apart, the last one as it is; one line per row, with newlines.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

// The same for a terminal of that many columns: no line is wider. The last column is cut, and where
// nothing would be left of it, whole columns go, those that `least` names in the first row, in that
// order, until the rest fits.
std::string FormatTableWithin(std::vector<std::vector<std::string>> rows, int width,
                              const std::vector<std::string>& least);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TERMINAL_TABLE_H_
