#ifndef GPUCTL_COMMON_FILES_SYNC_FS_H_
#define GPUCTL_COMMON_FILES_SYNC_FS_H_

#include <cstdint>

namespace gpuctl {

// Brings everything unwritten of the file system that holds `fd` to stable storage. 0, or -1 with
// errno; ENOSYS where there is no such call and files must be synced one by one.
int SyncFileSystem(int fd);

// Has the kernel begin to write these bytes of a file to the disk, so that bringing all to stable
// storage later finds less to do. A hint that does not wait for the disk.
void BeginWriteBack(int fd, int64_t offset, int64_t length);

// Whether what is written through `fd` from now on passes by the page cache. Offsets, sizes and
// addresses of such writes are multiples of kUncachedAlignment. False where there is no such way.
bool SetUncached(int fd, bool uncached);
constexpr int64_t kUncachedAlignment = 4096;

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FILES_SYNC_FS_H_
