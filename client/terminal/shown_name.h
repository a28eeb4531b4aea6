// Formats names of files in lines for people.
#ifndef GPUCTL_CLIENT_TERMINAL_SHOWN_NAME_H_
#define GPUCTL_CLIENT_TERMINAL_SHOWN_NAME_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gpuctl {

// Returns the first three of `names`, and how many more: "a, b, c, 4 more".
std::string FirstFew(const std::vector<std::string>& names);

// Returns `name` as one types it to a shell, quoted where needed. Returns `otherwise` for a name
// that a terminal does not show as it is, or that a program would take for a flag.
std::string TypedName(const std::string& name, absl::string_view otherwise);

// Return remarks about files that were read: somebody appended to the first meanwhile, and the
// others have setuid or setgid, which does not come along. `names` is not empty.
std::string DescribeGrown(const std::vector<std::string>& names);
std::string DescribeSetId(const std::vector<std::string>& names);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TERMINAL_SHOWN_NAME_H_
