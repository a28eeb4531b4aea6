// Helpers for whole files, and the one place that injects file-operation faults.
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
// that a test can make the n-th of them fail. Results and errno are those of the wrapped calls. All
// retry EINTR and open descriptors with O_CLOEXEC.
namespace file_ops {

enum class Op { kOpen, kWrite, kSync, kRename, kUnlink, kMkdir, kTruncate, kLink };

// A function called before each operation. When it returns non-zero, that becomes errno and the
// operation does not happen. Tests set and clear it from one thread while no other thread uses
// files. An empty hook removes it.
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
// Returns non-zero and sets errno when the hook wants this operation to fail. For calls that are
// not wrapped here.
int Fault(Op op, const std::string& path);

}  // namespace file_ops

// Does as fchmod(2). An entry's mode has more bits than mode_t has on macOS.
int SetMode(int fd, uint32_t mode);

// Returns the time of the file's last content change, in milliseconds since the epoch.
int64_t ModifiedMs(const struct stat& info);

// Returns "dir/name" without a double slash.
std::string JoinPath(absl::string_view dir, absl::string_view name);
std::string DirName(absl::string_view path);
std::string BaseName(absl::string_view path);

bool PathExists(const std::string& path);
bool IsDirectory(const std::string& path);

// Returns the file's bytes. RESOURCE_EXHAUSTED when it has more than `max_bytes`.
absl::StatusOr<std::string> ReadFileToString(const std::string& path, int64_t max_bytes = 64 << 20);

// Writes all of `data` and retries short writes. `what` names the target in errors.
absl::Status WriteAll(int fd, absl::string_view data, absl::string_view what);

// Replaces a file's contents. Readers see the old contents or the new, never a mixture, also after
// a power loss: it writes a temporary file in the same directory, syncs it, renames it and syncs
// the directory. On error the target is untouched and the temporary file is removed.
absl::Status WriteFileAtomic(const std::string& path, absl::string_view contents,
                             mode_t mode = 0600);

absl::Status SyncDirectory(const std::string& path);

// Makes `path` and its missing parents (mkdir -p); new directories get `mode`.
absl::Status MakeDirectories(const std::string& path, mode_t mode = 0700);

// Removes a tree (rm -rf) and never follows symlinks. A missing path is OK.
absl::Status RemoveTree(const std::string& path);

// Returns the names in `path`, sorted, without "." and "..".
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);

// Makes a new directory "prefix" + random suffix under $TMPDIR or /tmp, mode 0700.
absl::StatusOr<std::string> MakeTempDirectory(absl::string_view prefix);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FILES_FILES_H_
