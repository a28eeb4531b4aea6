#include "client/terminal/write_or_wake.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/status/status.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

absl::Status WaitUntilWritable(int fd, int wake_fd, bool& woken) {
  pollfd polled[2] = {{fd, POLLOUT, 0}, {wake_fd, POLLIN, 0}};
  while (poll(polled, wake_fd >= 0 ? 2 : 1, -1) < 0) {
    if (errno != EINTR) return ErrnoStatus(errno, "wait for the terminal");
  }
  woken = wake_fd >= 0 && (polled[1].revents & POLLIN) != 0;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<size_t> WriteOrWake(int fd, absl::string_view text, int wake_fd) {
  struct stat info = {};
  const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  size_t done = 0;
  while (done < text.size()) {
    bool woken = false;
    if (!regular) RETURN_IF_ERROR(WaitUntilWritable(fd, wake_fd, woken));
    if (woken) return done;
    // A pipe that polls writable takes this much without blocking.
    const size_t piece = regular ? text.size() - done : std::min<size_t>(text.size() - done, 4096);
    const ssize_t written = write(fd, text.data() + done, piece);
    if (written >= 0) {
      done += static_cast<size_t>(written);
    } else if (errno == EPIPE || errno == EIO) {
      return absl::UnavailableError("write the output: its reader is gone");
    } else if (errno != EINTR && errno != EAGAIN) {
      return ErrnoStatus(errno, "write the output");
    }
  }
  return done;
}

}  // namespace gpuctl
