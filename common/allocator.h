// What programs that move much data want of malloc.
#ifndef GPUCTL_COMMON_ALLOCATOR_H_
#define GPUCTL_COMMON_ALLOCATOR_H_

namespace gpuctl {

// Freed memory is kept for the next use instead of going back to the kernel at once: messages of
// 256 KiB come and go all the time, and faulting fresh pages in for each cost a server four fifths
// of its processor time. Up to 16 MiB per thread's heap stay. To be called first in main. Does
// nothing where malloc is not glibc's.
void KeepFreedMemory();

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_ALLOCATOR_H_
