// A rolling hash (Gear) and what follows from it: places and cuts that depend on content alone, not
// on its offset in a file.
#ifndef GPUCTL_COMMON_DELTA_GEAR_H_
#define GPUCTL_COMMON_DELTA_GEAR_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace gpuctl {

// The hash depends on exactly this number of bytes before a place.
constexpr size_t kGearBytes = 64;
// The number of bytes at the beginning of a part in which its anchor lies.
constexpr size_t kAnchorRangeBytes = 64 << 10;
// The sizes of chunks: 16 KiB on average.
constexpr size_t kMinChunkBytes = 4 << 10;
constexpr size_t kMaxChunkBytes = 64 << 10;

// A place in content at which that content is recognized.
struct Anchor {
  uint32_t end = 0;   // of the hashed bytes, counted from the content's beginning; 0: no anchor
  uint64_t hash = 0;  // of the kGearBytes bytes before it
};

// Returns the hash of the last kGearBytes bytes of `bytes`, which has at least as many.
uint64_t GearOf(absl::string_view bytes);

// Calls `visit` with the end and the hash of each place in `bytes` that has kGearBytes bytes before
// it and a hash of at least `least`. Stops when `visit` returns false.
template <typename Visit>
void ForEachPlace(absl::string_view bytes, uint64_t least, const Visit& visit);

// Returns the place with the largest hash. No anchor when several places have that hash, as in
// content that repeats itself, or when there is no place.
Anchor FindAnchor(absl::string_view bytes);

// Returns the size of the first chunk of `bytes`, which are not empty. Cuts in content-defined
// places (FastCDC with normalized sizes), so that an edit moves only the cuts near it. The caller
// gives kMaxChunkBytes bytes, or all that are left.
size_t FirstChunk(absl::string_view bytes);

extern const uint64_t kGear[256];

template <typename Visit>
void ForEachPlace(absl::string_view bytes, uint64_t least, const Visit& visit) {
  const auto* at = reinterpret_cast<const unsigned char*>(bytes.data());
  uint64_t hash = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    hash = (hash << 1) + kGear[at[i]];
    if (hash >= least && i + 1 >= kGearBytes && !visit(i + 1, hash)) return;
  }
}

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_DELTA_GEAR_H_
