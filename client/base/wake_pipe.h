// A pipe by which one thread wakes another that waits in poll.
#ifndef GPUCTL_CLIENT_BASE_WAKE_PIPE_H_
#define GPUCTL_CLIENT_BASE_WAKE_PIPE_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/unique_fd.h"
#include "common/process/signal_pipe.h"

namespace gpuctl {

// Open comes first, before a second thread uses the object; the other calls are safe from any
// thread.
class WakePipe {
 public:
  absl::Status Open();
  // Readable from Wake until Clear; -1 before Open.
  int fd() const { return read_.get(); }
  void Wake() const;
  void Clear() const;

 private:
  UniqueFd read_, write_;
};

// Waits until one of `wake_fds` is readable, a signal is in `signals`, or `timeout` is over
// (infinite: never). Reads nothing from them. Returns false when the time was over. That happens
// after an hour at the latest, so a caller with a deadline must read its clock again; the clock
// also counts the time that the machine was suspended. Returns true without news when any signal
// interrupts the wait.
bool WaitForNews(absl::Span<const int> wake_fds, const SignalPipe& signals, absl::Duration timeout);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_WAKE_PIPE_H_
