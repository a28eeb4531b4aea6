#include <fcntl.h>
#include <unistd.h>

#include "common/files/sync_fs.h"

namespace gpuctl {

int SyncFileSystem(int fd) { return syncfs(fd); }

void BeginWriteBack(int fd, int64_t offset, int64_t length) {
  (void)sync_file_range(fd, offset, length, SYNC_FILE_RANGE_WRITE);
}

bool SetUncached(int fd, bool uncached) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && fcntl(fd, F_SETFL, uncached ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

}  // namespace gpuctl
