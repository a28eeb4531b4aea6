// "Did you mean": the nearest of the words that would have been right.
#ifndef GPUCTL_CLIENT_BASE_SUGGEST_H_
#define GPUCTL_CLIENT_BASE_SUGGEST_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gpuctl {

// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`, ignoring
// case.
int EditDistance(absl::string_view a, absl::string_view b);

// The candidate nearest to `word`, or "" when none is near enough to be meant: a third of the
// longer word's length may differ (at least one character), or `word` and exactly one candidate
// begin alike: one is the other's beginning.
std::string Nearest(absl::string_view word, const std::vector<std::string>& candidates);

// ` (did you mean "x"?)`, or "".
std::string DidYouMean(absl::string_view word, const std::vector<std::string>& candidates);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_SUGGEST_H_
