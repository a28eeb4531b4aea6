#include "common/allocator.h"

#if defined(__linux__)
#include <malloc.h>
#endif

namespace gpuctl {

void KeepFreedMemory() {
#if defined(__GLIBC__)
  constexpr int kMiB = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, 8 * kMiB);
  mallopt(M_TRIM_THRESHOLD, 16 * kMiB);
  mallopt(M_TOP_PAD, kMiB);
#endif
}

}  // namespace gpuctl
