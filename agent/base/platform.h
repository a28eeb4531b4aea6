// What the shim asks of the operating system beyond POSIX. platform_linux.cc does it;
// platform_portable.cc does what can be done elsewhere.
#ifndef GPUCTL_AGENT_BASE_PLATFORM_H_
#define GPUCTL_AGENT_BASE_PLATFORM_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace gpuctl {

// Moves up to `max_bytes` from a non-blocking pipe to `position` of a file, in the kernel. Like
// read(2): 0 at the end, -1 with errno. ENOSYS or EINVAL: not here, read and write instead. After
// any error the bytes that were not written are still in the pipe.
ssize_t SplicePipe(int pipe_fd, int file_fd, int64_t position, size_t max_bytes);

// Asks for a pipe buffer of `bytes`; a smaller one is no error.
void GrowPipe(int fd, int bytes);

// Reserves disk blocks for [from, from + bytes) of a file without changing its size. False when the
// file system cannot, or is full.
bool ReserveBlocks(int fd, int64_t from, int64_t bytes);

// Orphaned descendants become this process's children. False where there is no such thing.
bool BecomeSubreaper();
void ResignSubreaper();

// No core dump of this process and no ptrace by others of the same user: secrets pass through it.
void ForbidDumps();
// Undoes ForbidDumps' part that execve does not, for the child.
void AllowDumps();

// In a child: SIGKILL when the parent dies. False when `parent` is gone already.
bool DieWithParent(pid_t parent);

// Makes this process the last that the OOM killer takes, where permitted. Returns the score that
// the child is to set, so that a job is always preferred.
int ShieldFromOom();
void SetOomScore(int score);

// The environment block of PID 1 ("A=b\0C=d\0"), or of $GPUCTL_PID1_ENVIRON, which stands in for it
// where the machine is not the node; empty when it cannot be read.
std::string InitEnvironment();

// Closes every descriptor from `first` on.
void CloseFrom(int first);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_PLATFORM_H_
