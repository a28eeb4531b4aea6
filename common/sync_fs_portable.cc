#include <cerrno>

#include "common/sync_fs.h"

namespace gpuctl {

int SyncFileSystem(int /*fd*/) {
  errno = ENOSYS;
  return -1;
}

}  // namespace gpuctl
