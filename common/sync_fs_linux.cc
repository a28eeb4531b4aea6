#include <unistd.h>

#include "common/sync_fs.h"

namespace gpuctl {

int SyncFileSystem(int fd) { return syncfs(fd); }

}  // namespace gpuctl
