#include "common/files/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace file_ops {
namespace {

FaultHook& Hook() {
  static FaultHook* const hook = new FaultHook;
  return *hook;
}

template <typename F>
auto RetryEintr(F&& call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result == -1 && errno == EINTR);
  return result;
}

}  // namespace

void SetFaultHook(FaultHook hook) { Hook() = std::move(hook); }

int Fault(Op op, const std::string& path) {
  if (!Hook()) return 0;
  const int error = Hook()(op, path);
  if (error != 0) errno = error;
  return error;
}

int Open(const std::string& path, int flags, mode_t mode) {
  if ((flags & (O_CREAT | O_WRONLY | O_RDWR)) != 0 && Fault(Op::kOpen, path) != 0) return -1;
  return RetryEintr([&] { return open(path.c_str(), flags | O_CLOEXEC, mode); });
}

ssize_t Write(int fd, const void* data, size_t size) {
  if (Fault(Op::kWrite, "") != 0) return -1;
  return RetryEintr([&] { return write(fd, data, size); });
}

ssize_t PWrite(int fd, const void* data, size_t size, off_t offset) {
  if (Fault(Op::kWrite, "") != 0) return -1;
  return RetryEintr([&] { return pwrite(fd, data, size, offset); });
}

int DataSync(int fd) {
  if (Fault(Op::kSync, "") != 0) return -1;
#if defined(__linux__)
  return RetryEintr([&] { return fdatasync(fd); });
#else
  return RetryEintr([&] { return fsync(fd); });
#endif
}

int Sync(int fd) {
  if (Fault(Op::kSync, "") != 0) return -1;
  return RetryEintr([&] { return fsync(fd); });
}

int Rename(const std::string& from, const std::string& to) {
  if (Fault(Op::kRename, to) != 0) return -1;
  return rename(from.c_str(), to.c_str());
}

int Unlink(const std::string& path) {
  if (Fault(Op::kUnlink, path) != 0) return -1;
  return unlink(path.c_str());
}

int MkDir(const std::string& path, mode_t mode) {
  if (Fault(Op::kMkdir, path) != 0) return -1;
  return mkdir(path.c_str(), mode);
}

int Truncate(int fd, off_t size) {
  if (Fault(Op::kTruncate, "") != 0) return -1;
  return RetryEintr([&] { return ftruncate(fd, size); });
}

}  // namespace file_ops

int SetMode(int fd, uint32_t mode) { return fchmod(fd, static_cast<mode_t>(mode)); }

int64_t ModifiedMs(const struct stat& info) {
#if defined(__APPLE__)
  return info.st_mtimespec.tv_sec * int64_t{1000} + info.st_mtimespec.tv_nsec / 1'000'000;
#else
  return info.st_mtim.tv_sec * int64_t{1000} + info.st_mtim.tv_nsec / 1'000'000;
#endif
}

std::string JoinPath(absl::string_view dir, absl::string_view name) {
  if (dir.empty()) return std::string(name);
  return absl::StrCat(dir, dir.back() == '/' ? "" : "/", name);
}

std::string DirName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos) return ".";
  return slash == 0 ? "/" : std::string(path.substr(0, slash));
}

std::string BaseName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(slash == absl::string_view::npos ? path : path.substr(slash + 1));
}

bool PathExists(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0;
}

bool IsDirectory(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

absl::StatusOr<std::string> ReadFileToString(const std::string& path, int64_t max_bytes) {
  UniqueFd fd(file_ops::Open(path, O_RDONLY));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("read ", path));
  std::string contents;
  struct stat info {};
  if (fstat(fd.get(), &info) == 0) {
    contents.reserve(static_cast<size_t>(std::min(int64_t{info.st_size}, max_bytes)));
  }
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = read(fd.get(), buffer, sizeof(buffer));
    if (got < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, absl::StrCat("read ", path));
    }
    if (got == 0) return contents;
    if (static_cast<int64_t>(contents.size()) + got > max_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("read ", path, ": larger than ", max_bytes, " bytes"));
    }
    contents.append(buffer, static_cast<size_t>(got));
  }
}

absl::Status WriteAll(int fd, absl::string_view data, absl::string_view what) {
  while (!data.empty()) {
    const ssize_t written = file_ops::Write(fd, data.data(), data.size());
    if (written < 0) return ErrnoStatus(errno, absl::StrCat("write ", what));
    data.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status WriteFileAtomic(const std::string& path, absl::string_view contents, mode_t mode) {
  const std::string temporary = absl::StrCat(path, ".tmp-", RandomHex(8));
  auto write_temporary = [&]() -> absl::Status {
    UniqueFd fd(file_ops::Open(temporary, O_WRONLY | O_CREAT | O_EXCL, mode));
    if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("create ", temporary));
    RETURN_IF_ERROR(WriteAll(fd.get(), contents, temporary));
    if (file_ops::Sync(fd.get()) != 0) return ErrnoStatus(errno, absl::StrCat("sync ", temporary));
    return absl::OkStatus();
  };
  absl::Status status = write_temporary();
  if (status.ok() && file_ops::Rename(temporary, path) != 0) {
    status = ErrnoStatus(errno, absl::StrCat("rename to ", path));
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  return SyncDirectory(DirName(path));
}

absl::Status SyncDirectory(const std::string& path) {
  UniqueFd fd(file_ops::Open(path, O_RDONLY | O_DIRECTORY));
  if (!fd.valid() || file_ops::Sync(fd.get()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("sync directory ", path));
  }
  return absl::OkStatus();
}

absl::Status MakeDirectories(const std::string& path, mode_t mode) {
  if (path.empty() || IsDirectory(path)) return absl::OkStatus();
  RETURN_IF_ERROR(MakeDirectories(DirName(path), mode));
  if (file_ops::MkDir(path, mode) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("make directory ", path));
  }
  if (!IsDirectory(path)) return ErrnoStatus(ENOTDIR, absl::StrCat("make directory ", path));
  return absl::OkStatus();
}

namespace {

// Removes `name` from the directory open at `parent`. It goes on after an error and reports it.
absl::Status RemoveAt(int parent, const char* name, const std::string& shown) {
  struct stat info {};
  if (fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno == ENOENT ? absl::OkStatus() : ErrnoStatus(errno, absl::StrCat("remove ", shown));
  }
  absl::Status result;
  if (S_ISDIR(info.st_mode)) {
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == EACCES && fchmodat(parent, name, 0700, 0) == 0) {
      fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    DIR* dir = fd < 0 ? nullptr : fdopendir(fd);
    if (dir == nullptr) {
      if (fd >= 0) close(fd);
      return ErrnoStatus(errno, absl::StrCat("remove ", shown));
    }
    fchmod(fd, info.st_mode | 0700);
    std::vector<std::string> names;
    while (const dirent* entry = readdir(dir)) {
      const absl::string_view child = entry->d_name;
      if (child != "." && child != "..") names.emplace_back(child);
    }
    for (const std::string& child : names) {
      result.Update(RemoveAt(fd, child.c_str(), JoinPath(shown, child)));
    }
    closedir(dir);
  }
  if (unlinkat(parent, name, S_ISDIR(info.st_mode) ? AT_REMOVEDIR : 0) != 0 && errno != ENOENT) {
    result.Update(ErrnoStatus(errno, absl::StrCat("remove ", shown)));
  }
  return result;
}

}  // namespace

absl::Status RemoveTree(const std::string& path) { return RemoveAt(AT_FDCWD, path.c_str(), path); }

absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) {
  DIR* dir = opendir(path.c_str());
  if (dir == nullptr) return ErrnoStatus(errno, absl::StrCat("list ", path));
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(dir)) {
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  const int error_number = errno;
  closedir(dir);
  if (error_number != 0) return ErrnoStatus(error_number, absl::StrCat("list ", path));
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<std::string> MakeTempDirectory(absl::string_view prefix) {
  const char* base = getenv("TMPDIR");
  std::string path =
      JoinPath(base != nullptr && *base != '\0' ? base : "/tmp", absl::StrCat(prefix, "XXXXXX"));
  if (mkdtemp(path.data()) == nullptr) {
    return ErrnoStatus(errno, absl::StrCat("make temporary directory ", path));
  }
  return path;
}

}  // namespace gpuctl
