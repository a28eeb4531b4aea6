// Patterns of results, as people write them.
#ifndef GPUCTL_CLIENT_WORDS_RESULT_PATTERNS_H_
#define GPUCTL_CLIENT_WORDS_RESULT_PATTERNS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

enum class PatternsOf { kCheckpoints, kFiles };

// Gives patterns the form in which paths of the work directory match them: without "./" and double
// slashes. A pattern of files that ends with a slash gets all files below. INVALID_ARGUMENT, which
// names `where`, for a pattern that can match nothing there: an empty or absolute one, or one with
// a component "..".
absl::Status NormalizePatterns(absl::string_view where, PatternsOf what,
                               std::vector<std::string>& patterns);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_WORDS_RESULT_PATTERNS_H_
