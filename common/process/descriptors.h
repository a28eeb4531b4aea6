#ifndef GPUCTL_COMMON_PROCESS_DESCRIPTORS_H_
#define GPUCTL_COMMON_PROCESS_DESCRIPTORS_H_

#include <fcntl.h>
#include <unistd.h>

namespace gpuctl {

// Has the kernel make room for `count` descriptors while there is one thread. With more, Linux lets
// each doubling of the table (at 64, 128, 256 …) wait for an RCU grace period: 5 to 30 ms in an
// open() that takes a microsecond otherwise. First thing in main.
inline void ReserveDescriptors(int count) {
  const int last = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, count - 1);
  if (last >= 0) close(last);
}

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_PROCESS_DESCRIPTORS_H_
