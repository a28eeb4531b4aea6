#ifndef GPUCTL_COMMON_SYNC_FS_H_
#define GPUCTL_COMMON_SYNC_FS_H_

#include <cstdint>

namespace gpuctl {

// Brings everything unwritten of the file system that holds `fd` to stable storage. 0, or -1 with
// errno; ENOSYS where there is no such call and files must be synced one by one.
int SyncFileSystem(int fd);

// Has the kernel begin to write these bytes of a file to the disk, so that bringing all to stable
// storage later finds less to do. A hint that does not wait for the disk.
void BeginWriteBack(int fd, int64_t offset, int64_t length);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_SYNC_FS_H_
