// A word for a POSIX shell.
#ifndef GPUCTL_CLIENT_BASE_SHELL_QUOTE_H_
#define GPUCTL_CLIENT_BASE_SHELL_QUOTE_H_

#include <string>

namespace gpuctl {

// `word` as a POSIX shell reads it back.
std::string ShellQuote(const std::string& word);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_SHELL_QUOTE_H_
