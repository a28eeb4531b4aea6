// Shell patterns that select paths of a tree.
#ifndef GPUCTL_COMMON_BASE_PATH_PATTERN_H_
#define GPUCTL_COMMON_BASE_PATH_PATTERN_H_

#include <string>

namespace gpuctl {

// True when `path` (relative, '/'-separated) matches `pattern`. Patterns are those of fnmatch(3) in
// which only '/' matches '/'; "**/" also stands for zero or more whole directories.
bool MatchesPattern(const std::string& pattern, const std::string& path);

// Returns the directory that holds everything the pattern can match: its leading whole components
// without *, ? and [, never the last component. "" when there are none.
std::string FixedDirectory(const std::string& pattern);

// True when something below the directory `path` may match.
bool MayMatchBelow(const std::string& pattern, const std::string& path);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BASE_PATH_PATTERN_H_
