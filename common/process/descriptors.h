#ifndef GPUCTL_COMMON_PROCESS_DESCRIPTORS_H_
#define GPUCTL_COMMON_PROCESS_DESCRIPTORS_H_

#include <fcntl.h>
#include <unistd.h>

namespace gpuctl {

// Makes the kernel's descriptor table large enough for `count` descriptors while there is one
// thread. With more threads, each doubling of the table (at 64, 128, 256 …) waits for an RCU grace
// period on Linux: 5 to 30 ms in an open() that otherwise takes a microsecond. Call it first in
// main.
inline void ReserveDescriptors(int count) {
  const int last = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, count - 1);
  if (last >= 0) close(last);
}

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_PROCESS_DESCRIPTORS_H_
