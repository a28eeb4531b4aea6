#include "client/base/wake_pipe.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/process/pipe.h"

namespace gpuctl {
namespace {

// Converts to poll's milliseconds. Rounds up, so that nobody wakes up too early.
int PollMs(absl::Duration timeout) {
  if (timeout == absl::InfiniteDuration()) return -1;
  const absl::Duration wait = std::clamp(timeout, absl::ZeroDuration(), absl::Hours(1));
  return static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(wait, absl::Milliseconds(1))));
}

}  // namespace

absl::Status WakePipe::Open() {
  ASSIGN_OR_RETURN(FdPair ends, MakePipe("make a pipe"));
  for (const int end : {ends.first.get(), ends.second.get()}) fcntl(end, F_SETFL, O_NONBLOCK);
  read_ = std::move(ends.first);
  write_ = std::move(ends.second);
  return absl::OkStatus();
}

void WakePipe::Wake() const {
  // A full pipe is readable already.
  [[maybe_unused]] const ssize_t written = write(write_.get(), "", 1);
}

void WakePipe::Clear() const {
  char bytes[256];
  while (read(read_.get(), bytes, sizeof(bytes)) > 0) {
  }
}

bool WaitForNews(absl::Span<const int> wake_fds, const SignalPipe& signals,
                 absl::Duration timeout) {
  std::vector<pollfd> polled = {{signals.fd(), POLLIN, 0}};
  for (const int fd : wake_fds) polled.push_back({fd, POLLIN, 0});
  return poll(polled.data(), static_cast<nfds_t>(polled.size()), PollMs(timeout)) != 0;
}

}  // namespace gpuctl
