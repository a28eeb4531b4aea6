// Signals as bytes on a descriptor, so that a poll loop sees them.
#ifndef GPUCTL_COMMON_PROCESS_SIGNAL_PIPE_H_
#define GPUCTL_COMMON_PROCESS_SIGNAL_PIPE_H_

#include <signal.h>

#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace gpuctl {

// Catches signals while it lives; its end brings the previous dispositions back. Of two that live
// at once the later one ends first, and both read the same pipe. The pipe is the process's own: a
// forked child gets another. Made before there are other threads, or where no other makes one.
class SignalPipe {
 public:
  // What a signal does to a system call that waits.
  enum class WaitingCall { kInterrupted, kRestarted };

  // A SIGHUP that is ignored, as below nohup, stays so. By default a write to a blocked terminal
  // comes back with EINTR.
  static absl::StatusOr<SignalPipe> Install(std::initializer_list<int> signals,
                                            WaitingCall waiting_call = WaitingCall::kInterrupted);
  SignalPipe(SignalPipe&& other) noexcept;
  SignalPipe& operator=(SignalPipe&&) = delete;
  ~SignalPipe();

  // Readable when a signal has come. Never closed.
  int fd() const { return fd_; }
  // The signals since the last call, in order.
  std::vector<int> Take();

 private:
  explicit SignalPipe(int fd) : fd_(fd) {}
  int fd_ = -1;
  std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_PROCESS_SIGNAL_PIPE_H_
