// A word for a POSIX shell.
#ifndef GPUCTL_CLIENT_BASE_SHELL_QUOTE_H_
#define GPUCTL_CLIENT_BASE_SHELL_QUOTE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace gpuctl {

// `word` as a POSIX shell reads it back.
std::string ShellQuote(const std::string& word);

// True for a word that nobody can misread and that ShellQuote leaves as it is: letters, digits and
// few other characters of ASCII, not too many, and no '-' in front. What a node, a market or a job
// has named stands in a command that is shown to people only if this is true.
bool IsPlainWord(absl::string_view word);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_SHELL_QUOTE_H_
