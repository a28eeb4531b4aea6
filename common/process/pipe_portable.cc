#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/process/pipe.h"

namespace gpuctl {
namespace {

FdPair CloseOnExec(const int (&ends)[2]) {
  for (const int fd : ends) fcntl(fd, F_SETFD, FD_CLOEXEC);
  return FdPair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace

absl::StatusOr<FdPair> MakePipe(absl::string_view context) {
  int ends[2];
  if (pipe(ends) != 0) return ErrnoStatus(errno, absl::StrCat(context, ": pipe"));
  return CloseOnExec(ends);
}

absl::StatusOr<FdPair> MakeSocketPair(absl::string_view context) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
    return ErrnoStatus(errno, absl::StrCat(context, ": socketpair"));
  }
  return CloseOnExec(ends);
}

}  // namespace gpuctl
