#include "agent/base/fifo.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace gpuctl {

absl::StatusOr<UniqueFd> OpenFifo(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) == 0 && !S_ISFIFO(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat("open ", path, ": not a FIFO"));
  }
  if (mkfifo(path.c_str(), 0600) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("make FIFO ", path));
  }
  UniqueFd fd(open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
  return fd;
}

}  // namespace gpuctl
