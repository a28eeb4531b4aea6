// Shell patterns that select paths of a tree.
#ifndef GPUCTL_COMMON_BASE_PATH_PATTERN_H_
#define GPUCTL_COMMON_BASE_PATH_PATTERN_H_

#include <string>

namespace gpuctl {

// True when `path` (relative, '/'-separated) matches `pattern`. Patterns are those of fnmatch(3) in
// which only '/' matches '/'; "**/" also stands for zero or more whole directories, and "**" at the
// end for everything below.
bool MatchesPattern(const std::string& pattern, const std::string& path);

// Returns the directory that holds everything the pattern can match: its leading whole components
// without *, ? and [, never the last component. "" when there are none.
std::string FixedDirectory(const std::string& pattern);

// True when something below the directory `path` may match.
bool MayMatchBelow(const std::string& pattern, const std::string& path);

// True when each component of `path` matches the pattern's at its place, and none of these is "**":
// the pattern names this path, or a directory on the way to what it names.
bool NamesPlace(const std::string& pattern, const std::string& path);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BASE_PATH_PATTERN_H_
