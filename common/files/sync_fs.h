#ifndef GPUCTL_COMMON_FILES_SYNC_FS_H_
#define GPUCTL_COMMON_FILES_SYNC_FS_H_

#include <cstdint>

namespace gpuctl {

// Syncs the whole file system that holds `fd`. Returns 0, or -1 with errno; ENOSYS where there is
// no such call and files must be synced one by one.
int SyncFileSystem(int fd);

// Makes the kernel begin to write these bytes of a file to the disk, so that a later sync has less
// to do. It is a hint and does not wait for the disk.
void BeginWriteBack(int fd, int64_t offset, int64_t length);

// Makes later writes through `fd` bypass the page cache, or stop doing so. Offsets, sizes and
// addresses of such writes must be multiples of kUncachedAlignment. Returns false where the system
// has no such way.
bool SetUncached(int fd, bool uncached);
constexpr int64_t kUncachedAlignment = 4096;

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FILES_SYNC_FS_H_
