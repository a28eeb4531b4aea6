#ifndef GPUCTL_COMMON_SYNC_FS_H_
#define GPUCTL_COMMON_SYNC_FS_H_

namespace gpuctl {

// Brings everything unwritten of the file system that holds `fd` to stable storage. 0, or -1 with
// errno; ENOSYS where there is no such call and files must be synced one by one.
int SyncFileSystem(int fd);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_SYNC_FS_H_
