// Breaks long lines between words.
#ifndef GPUCTL_CLIENT_TERMINAL_WORD_WRAP_H_
#define GPUCTL_CLIENT_TERMINAL_WORD_WRAP_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gpuctl {

// Returns `line` in parts of at most `columns` columns; all but the first begin with `indent`
// spaces. A word that is too long for a line gets a line of its own. `columns` 0, or not more than
// twice the indent: the line as it is. Pure.
std::vector<std::string> WrapAtWords(absl::string_view line, int columns, int indent);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TERMINAL_WORD_WRAP_H_
