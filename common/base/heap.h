#ifndef GPUCTL_COMMON_BASE_HEAP_H_
#define GPUCTL_COMMON_BASE_HEAP_H_

#if defined(__linux__)
#include <features.h>
#endif
#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace gpuctl {

// Makes glibc's malloc keep freed buffers of some hundred kilobytes for reuse. By default it gets
// each from the kernel and gives it back, and the page faults cost as much as the work. Call it
// first in main.
inline void KeepHeap() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_THRESHOLD, 8 << 20);
  mallopt(M_TRIM_THRESHOLD, 16 << 20);
  mallopt(M_TOP_PAD, 1 << 20);
#endif
}

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BASE_HEAP_H_
