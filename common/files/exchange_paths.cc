#include "common/files/exchange_paths.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {

absl::Status ExchangePaths(const std::string& a, const std::string& b) {
  long result = file_ops::Fault(file_ops::Op::kRename, b) != 0 ? -1 : 0;
#if defined(__APPLE__)
  if (result == 0) result = renamex_np(a.c_str(), b.c_str(), RENAME_SWAP);
#elif defined(__linux__) && defined(SYS_renameat2)
  // By its number: older C libraries have no function for it.
  constexpr unsigned kRenameExchange = 1 << 1;
  if (result == 0) {
    result = syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), kRenameExchange);
  }
#else
  result = -1;
  errno = ENOSYS;
#endif
  if (result == 0) return absl::OkStatus();
  if (errno == ENOSYS || errno == EINVAL || errno == ENOTSUP) {
    return absl::UnimplementedError(absl::StrCat("exchange ", a, " and ", b));
  }
  return ErrnoStatus(errno, absl::StrCat("exchange ", a, " and ", b));
}

namespace {

std::string OlderPath(const std::string& to) {
  return JoinPath(DirName(to), absl::StrCat(kOlderPrefix, BaseName(to)));
}

}  // namespace

absl::Status ReplaceDirectory(const std::string& from, const std::string& to) {
  const absl::Status exchanged = ExchangePaths(from, to);
  if (exchanged.ok()) return SyncDirectory(DirName(to));
  if (!absl::IsUnimplemented(exchanged)) return exchanged;
  const std::string older = OlderPath(to);
  RETURN_IF_ERROR(SettleReplaced(to));
  if (file_ops::Rename(to, older) != 0) return ErrnoStatus(errno, absl::StrCat("move away ", to));
  if (file_ops::Rename(from, to) != 0) {
    const int error_number = errno;
    (void)file_ops::Rename(older, to);
    return ErrnoStatus(error_number, absl::StrCat("publish ", to));
  }
  RETURN_IF_ERROR(SyncDirectory(DirName(to)));
  return RemoveTree(older);
}

absl::Status SettleReplaced(const std::string& to) {
  const std::string older = OlderPath(to);
  if (!PathExists(older)) return absl::OkStatus();
  if (PathExists(to)) return RemoveTree(older);
  if (file_ops::Rename(older, to) != 0) {
    return ErrnoStatus(errno, absl::StrCat("move back ", older));
  }
  return SyncDirectory(DirName(to));
}

}  // namespace gpuctl
