// Signals as bytes on a descriptor, so that a poll loop sees them.
#ifndef GPUCTL_COMMON_PROCESS_SIGNAL_PIPE_H_
#define GPUCTL_COMMON_PROCESS_SIGNAL_PIPE_H_

#include <signal.h>

#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace gpuctl {

// Catches signals while it lives and restores the previous dispositions when it ends. When two live
// at once, both read the same pipe and the later one must end first. The pipe belongs to the
// process: a forked child gets another. Make it before there are other threads, or while no other
// thread makes one.
class SignalPipe {
 public:
  // The effect of a signal on a system call that waits.
  enum class WaitingCall { kInterrupted, kRestarted };

  // Begins to catch `signals`. A SIGHUP that is ignored, as under nohup, stays ignored. By default
  // a write to a blocked terminal returns with EINTR.
  static absl::StatusOr<SignalPipe> Install(std::initializer_list<int> signals,
                                            WaitingCall waiting_call = WaitingCall::kInterrupted);
  SignalPipe(SignalPipe&& other) noexcept;
  SignalPipe& operator=(SignalPipe&&) = delete;
  ~SignalPipe();

  // Returns a descriptor that is readable when a signal has come. It is never closed.
  int fd() const { return fd_; }
  // Returns the signals since the last call, in order.
  std::vector<int> Take();
  // Catches them until the process ends, and not only while this lives. A process that is about to
  // say that it was interrupted, and what that costs, does not die of a second Ctrl-C before.
  void CatchUntilExit() { before_.clear(); }

 private:
  explicit SignalPipe(int fd) : fd_(fd) {}
  int fd_ = -1;
  std::vector<std::pair<int, struct sigaction>> before_;
};

// True when a SIGINT has come to a SignalPipe since the last call: a terminal may show ^C for it.
bool TakeInterrupted();

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_PROCESS_SIGNAL_PIPE_H_
