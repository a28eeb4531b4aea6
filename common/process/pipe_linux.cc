#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/process/pipe.h"

namespace gpuctl {

absl::StatusOr<FdPair> MakePipe(absl::string_view context) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, absl::StrCat(context, ": pipe"));
  return FdPair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

absl::StatusOr<FdPair> MakeSocketPair(absl::string_view context) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return ErrnoStatus(errno, absl::StrCat(context, ": socketpair"));
  }
  return FdPair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace gpuctl
