// Shell patterns that select paths of a tree.
#ifndef GPUCTL_COMMON_BASE_PATH_PATTERN_H_
#define GPUCTL_COMMON_BASE_PATH_PATTERN_H_

#include <string>

namespace gpuctl {

// Whether `path` (relative, '/'-separated) matches `pattern`: as in fnmatch(3) with '/' matched by
// itself only, where "**/" also stands for any number of whole directories, none included.
bool MatchesPattern(const std::string& pattern, const std::string& path);

// The directory that everything the pattern matches lies below: its whole leading components
// without *, ? and [. "" when there are none; never the last component.
std::string FixedDirectory(const std::string& pattern);

// Whether something below the directory `path` may match.
bool MayMatchBelow(const std::string& pattern, const std::string& path);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BASE_PATH_PATTERN_H_
