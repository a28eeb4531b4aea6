#ifndef GPUCTL_COMMON_PROCESS_DESCRIPTORS_H_
#define GPUCTL_COMMON_PROCESS_DESCRIPTORS_H_

#include <fcntl.h>
#include <unistd.h>

namespace gpuctl {

// Makes the kernel's descriptor table large enough for `count` descriptors while there is one
// thread. With more threads, each doubling of the table (at 64, 128, 256 …) waits for an RCU grace
// period on Linux: 5 to 30 ms in an open() that otherwise takes a microsecond. Call it in
// main, before there are threads.
inline void ReserveDescriptors(int count) {
  const int last = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, count - 1);
  if (last >= 0) close(last);
}

// Opens /dev/null for each of stdin, stdout and stderr that is closed; else the next file that is
// opened would become one of them. stdin is at its end then; a write to stdout or stderr fails with
// EBADF, as before. Call it before anything else opens a file.
inline void FillStandardDescriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // open() takes the lowest free descriptor, which is `fd`.
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0) return;
  }
}

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_PROCESS_DESCRIPTORS_H_
