// Quotes words for a POSIX shell.
#ifndef GPUCTL_CLIENT_BASE_SHELL_QUOTE_H_
#define GPUCTL_CLIENT_BASE_SHELL_QUOTE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace gpuctl {

// Returns `word` quoted so that a POSIX shell reads it back.
std::string ShellQuote(absl::string_view word);

// True when nobody can misread `word` and ShellQuote leaves it as it is: letters, digits and few
// other characters of ASCII, not too many, and no '-' in front. A command that is shown to people
// contains a name from a node, a market or a job only if this is true.
bool IsPlainWord(absl::string_view word);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_SHELL_QUOTE_H_
