// "Did you mean": finds the nearest valid word.
#ifndef GPUCTL_CLIENT_BASE_SUGGEST_H_
#define GPUCTL_CLIENT_BASE_SUGGEST_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gpuctl {

// Counts the insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`,
// ignoring case.
int EditDistance(absl::string_view a, absl::string_view b);

// Returns the candidate nearest to `word`, or "" when none is near enough. A candidate is near
// enough when the distance is at most a third of the longer word's length (at least one character),
// or when it is the only candidate that is a prefix of `word` or begins with it.
std::string Nearest(absl::string_view word, const std::vector<std::string>& candidates);

// Returns ` (did you mean "x"?)`, or "".
std::string DidYouMean(absl::string_view word, const std::vector<std::string>& candidates);
// Does so for names with a number behind the last "-", of which `word` may have only the front
// part: ` (did you mean "x-3", "x-2" or "x-1"?)`. Names at most three, the nearest first; of those
// that are equally near, the first in `candidates`.
std::string DidYouMeanOneOf(absl::string_view word, const std::vector<std::string>& candidates);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_SUGGEST_H_
