#include <fcntl.h>

#include <cerrno>

#include "common/files/sync_fs.h"

namespace gpuctl {

int SyncFileSystem(int /*fd*/) {
  errno = ENOSYS;
  return -1;
}

void BeginWriteBack(int, int64_t, int64_t) {}

bool SetUncached(int fd, bool uncached) {
#if defined(F_NOCACHE)
  return fcntl(fd, F_NOCACHE, uncached ? 1 : 0) == 0;
#else
  (void)fd;
  return !uncached;
#endif
}

}  // namespace gpuctl
