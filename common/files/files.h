// Whole-file helpers and the one place where file-operation faults are injected.
#ifndef GPUCTL_COMMON_FILES_FILES_H_
#define GPUCTL_COMMON_FILES_FILES_H_

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// The file operations that change a disk. Durable code calls these instead of the system's own, so
// that a test can make the n-th of them fail. Same results and errno as the calls they wrap; all
// retry EINTR; descriptors are opened O_CLOEXEC.
namespace file_ops {

enum class Op { kOpen, kWrite, kSync, kRename, kUnlink, kMkdir, kTruncate, kLink };

// Called before each operation; a non-zero result becomes errno and the operation does not happen.
// For tests, which set and clear it from one thread while no other operates. Empty removes it.
using FaultHook = std::function<int(Op op, const std::string& path)>;
void SetFaultHook(FaultHook hook);

int Open(const std::string& path, int flags, mode_t mode = 0600);
ssize_t Write(int fd, const void* data, size_t size);
ssize_t PWrite(int fd, const void* data, size_t size, off_t offset);
int DataSync(int fd);
int Sync(int fd);
int Rename(const std::string& from, const std::string& to);
int Unlink(const std::string& path);
int MkDir(const std::string& path, mode_t mode = 0700);
int Truncate(int fd, off_t size);
// Non-zero, with errno set, when the hook wants this operation to fail; for calls not wrapped here.
int Fault(Op op, const std::string& path);

}  // namespace file_ops

// Returns when the file's content was changed last, in milliseconds since the epoch.
int64_t ModifiedMs(const struct stat& info);

// "dir/name", without doubling a slash.
std::string JoinPath(absl::string_view dir, absl::string_view name);
std::string DirName(absl::string_view path);
std::string BaseName(absl::string_view path);

bool PathExists(const std::string& path);
bool IsDirectory(const std::string& path);

// The file's bytes; RESOURCE_EXHAUSTED when it has more than `max_bytes`.
absl::StatusOr<std::string> ReadFileToString(const std::string& path, int64_t max_bytes = 64 << 20);

// All of `data`, retrying short writes. `what` names the target in errors.
absl::Status WriteAll(int fd, absl::string_view data, absl::string_view what);

// Readers see the old contents or the new, never a mixture, also after a power loss: temporary file
// in the same directory, fsync, rename, fsync of the directory. On error the target is untouched
// and the temporary file is gone.
absl::Status WriteFileAtomic(const std::string& path, absl::string_view contents,
                             mode_t mode = 0600);

absl::Status SyncDirectory(const std::string& path);

// mkdir -p with `mode` for the directories it makes.
absl::Status MakeDirectories(const std::string& path, mode_t mode = 0700);

// rm -rf that never follows symlinks. A missing path is OK.
absl::Status RemoveTree(const std::string& path);

// Names in `path`, sorted, without "." and "..".
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);

// A fresh directory "prefix" + random suffix under $TMPDIR or /tmp, mode 0700.
absl::StatusOr<std::string> MakeTempDirectory(absl::string_view prefix);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FILES_FILES_H_
