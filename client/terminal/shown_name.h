// Names of files as they can be printed on a terminal.
#ifndef GPUCTL_CLIENT_TERMINAL_SHOWN_NAME_H_
#define GPUCTL_CLIENT_TERMINAL_SHOWN_NAME_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gpuctl {

// As it is; control characters, which could move a cursor or begin a line, as escapes: `a\nb`.
std::string ShownName(absl::string_view name);

// The first three of them, and how many more: "a, b, c, 4 more".
std::string FirstFew(const std::vector<std::string>& names);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TERMINAL_SHOWN_NAME_H_
