#include "trainer/base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "trainer/base/error.h"

namespace gpuctl::trainer {
namespace {

FaultHook& Hook() {
  static FaultHook hook;
  return hook;
}

void AskHook(const char* operation, const std::string& path) {
  if (!Hook()) return;
  if (const int error = Hook()(operation, path); error != 0) {
    throw IoError(operation, path, error);
  }
}

// Returns the mode of what lies there; 0: nothing, as behind links that go in a circle. A place
// that cannot be looked at may hold something, and throws.
mode_t ModeOf(const std::string& path, int (*look)(const char*, struct stat*)) {
  struct stat info {};
  if (look(path.c_str(), &info) == 0) return info.st_mode;
  if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP) return 0;
  throw IoError("stat", path, errno);
}

// Closes `fd`.
std::string ReadAll(int fd, const std::string& path, uint64_t most) {
  struct Closer {
    ~Closer() { ::close(fd); }
    const int fd;
  } const closer{fd};
  std::string bytes;
  struct stat info {};
  const auto refuse = [&] {
    throw DataError("read " + path + ": it has more than " + std::to_string(most) + " bytes");
  };
  if (::fstat(fd, &info) == 0 && static_cast<uint64_t>(info.st_size) > most) refuse();
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = ::read(fd, buffer, sizeof(buffer));
    if (count > 0) {
      bytes.append(buffer, static_cast<size_t>(count));
      if (bytes.size() > most) refuse();
    } else if (count == 0) {
      return bytes;
    } else if (errno != EINTR) {
      throw IoError("read", path, errno);
    }
  }
}

}  // namespace

void SetFaultHook(FaultHook hook) { Hook() = std::move(hook); }

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  AskHook("open", path_);
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) throw IoError("open", path_, errno);
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void OutputFile::Write(const void* bytes, size_t size) {
  AskHook("write", path_);
  const char* next = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t written = ::write(fd_, next, size);
    if (written < 0) {
      if (errno == EINTR) continue;
      throw IoError("write", path_, errno);
    }
    next += written;
    size -= static_cast<size_t>(written);
  }
}

void OutputFile::Close() {
  AskHook("fsync", path_);
  if (::fsync(fd_) != 0) throw IoError("fsync", path_, errno);
  AskHook("close", path_);
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) throw IoError("close", path_, errno);
}

void WriteFileDurably(const std::string& path, const std::string& bytes) {
  OutputFile file(path);
  file.Write(bytes.data(), bytes.size());
  file.Close();
}

int OpenRegularFile(const std::string& path) {
  // Without waiting for the other end of a FIFO.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0 && errno != ENXIO) throw IoError("open", path, errno);
  struct stat info {};
  const bool regular = fd >= 0 && ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (regular) return fd;
  if (fd >= 0) ::close(fd);
  throw DataError("read " + path + ": no regular file");
}

std::string ReadWholeFile(const std::string& path, uint64_t most) {
  return ReadAll(OpenRegularFile(path), path, most);
}

std::string ReadGivenFile(const std::string& path, uint64_t most) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw IoError("open", path, errno);
  return ReadAll(fd, path, most);
}

void MakeDirectory(const std::string& path) {
  AskHook("mkdir", path);
  if (::mkdir(path.c_str(), 0755) == 0) return;
  const int error = errno;
  if (error == EEXIST && IsDirectory(path)) return;
  if (error != EEXIST) throw IoError("mkdir", path, error);
  throw Error(ExitCode::kIo, "mkdir " + path + ": it is there, and is no directory");
}

void MakeDirectories(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string prefix = path.substr(0, slash);
    if (!IsDirectory(prefix)) MakeDirectory(prefix);
  }
  if (!IsDirectory(path)) MakeDirectory(path);
}

void SyncDirectory(const std::string& path) {
  AskHook("fsync", path);
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw IoError("open", path, errno);
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  if (result != 0) throw IoError("fsync", path, error);
}

void Rename(const std::string& from, const std::string& to) {
  AskHook("rename", to);
  if (::rename(from.c_str(), to.c_str()) != 0) throw IoError("rename", from + " to " + to, errno);
}

void ReplaceDirectory(const std::string& from, const std::string& to) {
  AskHook("rename", to);
  long result = -1;
  errno = ENOSYS;
#if defined(__APPLE__)
  result = ::renamex_np(from.c_str(), to.c_str(), RENAME_SWAP);
#elif defined(__linux__) && defined(SYS_renameat2)
  // By its number: older C libraries have no function for it.
  constexpr unsigned kExchange = 1 << 1;
  result = ::syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), kExchange);
#endif
  if (result == 0) return;
  if (errno != ENOSYS && errno != EINVAL && errno != ENOTSUP) {
    throw IoError("rename", from + " to " + to, errno);
  }
  const std::string old = from + ".old";
  Rename(to, old);
  Rename(from, to);
  Rename(old, from);
}

void RemoveTree(const std::string& path) {
  AskHook("remove", path);
  const auto remove_one = [](const char* one, const struct stat*, int, struct FTW* at) {
    if (::remove(one) == 0) return 0;
    if (errno != EACCES || at->level == 0) return -1;
    // In a directory to which its owner does not write.
    const std::string directory(one, static_cast<size_t>(at->base));
    return ::chmod(directory.c_str(), 0700) == 0 ? ::remove(one) : -1;
  };
  constexpr int kOpenDirectories = 16;
  if (::nftw(path.c_str(), remove_one, kOpenDirectories, FTW_DEPTH | FTW_PHYS) == 0) return;
  if (errno != ENOENT) throw IoError("remove", path, errno);
}

bool IsDirectory(const std::string& path) { return S_ISDIR(ModeOf(path, ::stat)); }
bool IsSymlink(const std::string& path) { return S_ISLNK(ModeOf(path, ::lstat)); }
bool IsFile(const std::string& path) { return S_ISREG(ModeOf(path, ::stat)); }
bool Exists(const std::string& path) { return ModeOf(path, ::lstat) != 0; }

uint64_t FileSize(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) throw IoError("stat", path, errno);
  return static_cast<uint64_t>(info.st_size);
}

std::vector<std::string> ListDirectory(const std::string& path) {
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) throw IoError("list", path, errno);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(directory)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  const int error_number = errno;
  ::closedir(directory);
  if (error_number != 0) throw IoError("list", path, error_number);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace gpuctl::trainer
