// Columns of text. Pure.
#ifndef GPUCTL_CLIENT_TABLE_H_
#define GPUCTL_CLIENT_TABLE_H_

#include <string>
#include <vector>

namespace gpuctl {

// Left-aligned columns two spaces apart, the last one as it is; one line per row, with newlines.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TABLE_H_
