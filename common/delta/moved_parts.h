// The search for parts of a large file in an older version of it, at any offset.
#ifndef GPUCTL_COMMON_DELTA_MOVED_PARTS_H_
#define GPUCTL_COMMON_DELTA_MOVED_PARTS_H_

#include <cstdint>
#include <vector>

#include "common/delta/gear.h"

namespace gpuctl {

// A range of bytes of a file.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

// A part of the new file that is searched for.
struct LostPart {
  int64_t part = 0;    // its number
  int64_t offset = 0;  // in the new file
  int64_t length = 0;
  Anchor anchor;
  int64_t found = -1;  // gets the offset in the older file at which it seems to be; -1: none
};

// Searches for `parts`, in ascending order, in the older file of `size` bytes. `explained` are
// ranges of the older file that are known to be somewhere else in the new one; they are not
// searched. What it finds are guesses by the anchors: the caller compares the content. Reads at
// most a quarter of the file (or 256 MiB) without finding anything.
void FindMovedParts(int fd, int64_t size, std::vector<Range> explained,
                    std::vector<LostPart>& parts);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_DELTA_MOVED_PARTS_H_
