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
  if (file_ops::Fault(file_ops::Op::kRename, b) != 0) {
    return ErrnoStatus(errno, absl::StrCat("exchange ", a, " and ", b));
  }
#if defined(__APPLE__)
  const int result = renamex_np(a.c_str(), b.c_str(), RENAME_SWAP);
#elif defined(__linux__) && defined(SYS_renameat2)
  // By its number: older C libraries have no function for it.
  constexpr unsigned kRenameExchange = 1 << 1;
  const long result =
      syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), kRenameExchange);
#else
  const int result = -1;
  errno = ENOSYS;
#endif
  if (result == 0) return absl::OkStatus();
  if (errno == ENOSYS || errno == EINVAL || errno == ENOTSUP) {
    return absl::UnimplementedError(absl::StrCat("exchange ", a, " and ", b));
  }
  return ErrnoStatus(errno, absl::StrCat("exchange ", a, " and ", b));
}

}  // namespace gpuctl
