// The shim's calls to the operating system beyond POSIX. platform_linux.cc implements them;
// platform_portable.cc does what is possible elsewhere.
#ifndef GPUCTL_AGENT_BASE_PLATFORM_H_
#define GPUCTL_AGENT_BASE_PLATFORM_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace gpuctl {

// Moves up to `max_bytes` from a non-blocking pipe to `position` of a file, in the kernel. Returns
// like read(2): 0 at the end, -1 with errno. ENOSYS or EINVAL: not possible here, use read and
// write. After any error the bytes not written are still in the pipe.
ssize_t SplicePipe(int pipe_fd, int file_fd, int64_t position, size_t max_bytes);

// Asks for a pipe buffer of `bytes`. A smaller buffer is not an error.
void GrowPipe(int fd, int bytes);

// Reserves disk blocks for [from, from + bytes) of a file and keeps its size. False when the file
// system cannot do that, or is full.
bool ReserveBlocks(int fd, int64_t from, int64_t bytes);

// Makes orphaned descendants this process's children, or stops that. False where the system cannot.
bool BecomeSubreaper();
void ResignSubreaper();

// Forbids core dumps of this process and ptrace by others of the same user, because secrets pass
// through it.
void ForbidDumps();
// Undoes, in the child, the part of ForbidDumps that execve does not undo.
void AllowDumps();

// Makes this child get SIGKILL when its parent dies. False when `parent` is gone already.
bool DieWithParent(pid_t parent);

// Makes this process the last that the OOM killer takes, where permitted. Returns the score for the
// child to set, so that the killer always takes the job first.
int ShieldFromOom();
void SetOomScore(int score);

// Returns the environment block of PID 1 ("A=b\0C=d\0"), or the file $GPUCTL_PID1_ENVIRON, which
// replaces it where the machine is not the node. Empty when it cannot be read.
std::string InitEnvironment();

// Closes every descriptor from `first` on.
void CloseFrom(int first);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_PLATFORM_H_
