#include "common/files/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/files/dir_walk.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/files/sha256.h"

namespace gpuctl {
namespace {

constexpr size_t kReadStepBytes = 1 << 18;

std::string Shown(const std::string& dir, const std::string& relative) {
  return JoinPath(dir, absl::CHexEscape(relative));
}

absl::Status NoRegularFile(const std::string& dir, const std::string& relative) {
  return absl::FailedPreconditionError(
      absl::StrCat("read ", Shown(dir, relative), ": it is not an ordinary file"));
}

// Reads up to `size` bytes; fewer only at the end.
absl::StatusOr<size_t> ReadSome(int fd, char* buffer, size_t size, const std::string& shown) {
  while (true) {
    const ssize_t got = read(fd, buffer, size);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR) return ErrnoStatus(errno, absl::StrCat("read ", shown));
  }
}

}  // namespace

absl::StatusOr<UniqueFd> OpenRegularFile(const std::string& dir, const std::string& relative) {
  const auto failed = [&]() -> absl::Status {
    const int error_number = errno;
    if (error_number == ELOOP) return NoRegularFile(dir, relative);
    return ErrnoStatus(error_number, absl::StrCat("read ", Shown(dir, relative)));
  };
  const UniqueFd top(file_ops::Open(dir, O_RDONLY | O_DIRECTORY));
  if (!top.valid()) return failed();
  DirWalk walk(top.get());
  ASSIGN_OR_RETURN(const int parent, walk.Open(ParentPath(relative)));
  UniqueFd fd(OpenBelow(parent, BaseName(relative), O_RDONLY | O_NONBLOCK, 0, relative));
  if (!fd.valid()) return failed();
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return failed();
  if (!S_ISREG(info.st_mode)) return NoRegularFile(dir, relative);
  return fd;
}

absl::StatusOr<std::string> ReadRegularFile(const std::string& dir, const std::string& relative,
                                            int64_t max_bytes) {
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenRegularFile(dir, relative));
  std::string contents;
  std::vector<char> buffer(kReadStepBytes);
  while (true) {
    ASSIGN_OR_RETURN(const size_t got,
                     ReadSome(fd.get(), buffer.data(), buffer.size(), Shown(dir, relative)));
    if (got == 0) return contents;
    if (static_cast<int64_t>(contents.size() + got) > max_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("read ", Shown(dir, relative), ": larger than ", max_bytes, " bytes"));
    }
    contents.append(buffer.data(), got);
  }
}

absl::StatusOr<std::string> Sha256HexOfRegularFile(const std::string& dir,
                                                   const std::string& relative, int64_t size) {
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenRegularFile(dir, relative));
  Sha256 hash;
  std::vector<char> buffer(kReadStepBytes);
  int64_t done = 0;
  while (true) {
    ASSIGN_OR_RETURN(const size_t got,
                     ReadSome(fd.get(), buffer.data(), buffer.size(), Shown(dir, relative)));
    done += static_cast<int64_t>(got);
    if (got == 0 ? done != size : done > size) {
      return absl::DataLossError(
          absl::StrCat("read ", Shown(dir, relative), ": it has not ", size, " bytes"));
    }
    if (got == 0) return absl::BytesToHexString(hash.Finish());
    hash.Update({buffer.data(), got});
  }
}

int64_t FreeBytes(const std::string& path) {
  struct statvfs disk {};
  if (statvfs(path.c_str(), &disk) != 0) return -1;
  const auto blocks = static_cast<uint64_t>(disk.f_bavail);
  const auto block = static_cast<uint64_t>(disk.f_frsize);
  if (block == 0 || blocks > uint64_t{INT64_MAX} / block) return INT64_MAX;
  return static_cast<int64_t>(blocks * block);
}

}  // namespace gpuctl
