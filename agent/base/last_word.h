// What a job's direct child tells the shim before it ends: a byte that says what it is, a text, and
// a NUL byte, in one write to a pipe. The first word counts.
#ifndef GPUCTL_AGENT_BASE_LAST_WORD_H_
#define GPUCTL_AGENT_BASE_LAST_WORD_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace gpuctl {

// A program could not be executed.
constexpr char kExecErrorWord = 'e';
// Which of several processes ended first, and how.
constexpr char kRankWord = 'r';
// The longest one, with its first byte. What is longer is cut.
constexpr size_t kMostWordBytes = 4096;

// Writes one. An error is ignored: nobody may read it any more.
void SayLastWord(int fd, char kind, absl::string_view text);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_LAST_WORD_H_
