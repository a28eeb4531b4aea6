#include "trainer/checkpoint/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/files.h"

namespace gpuctl::trainer {

DirectoryLock::DirectoryLock(std::string path) : path_(std::move(path)) {
  if (!path_.empty() && IsDirectory(path_)) Take();
}

void DirectoryLock::MakeAndTake() {
  if (path_.empty() || fd_ >= 0) return;
  try {
    MakeDirectories(path_);
  } catch (const Error& error) {
    throw Error(error.code(), "write checkpoints to " + path_ + ": " + error.what(), error.hint());
  }
  Take();
}

void DirectoryLock::Take() {
  fd_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd_ < 0) throw IoError("open", path_, errno);
  int result = -1;
  do {
    result = ::flock(fd_, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result == 0 || errno != EWOULDBLOCK) return;
  ::close(std::exchange(fd_, -1));
  throw ConfigError("use " + path_ + " for checkpoints: another trainer is at work there",
                    "wait until it has ended, or choose another --checkpoint-dir");
}

DirectoryLock::~DirectoryLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace gpuctl::trainer
