// Signals as bytes on a descriptor, so that a poll loop sees them.
#ifndef GPUCTL_CLIENT_SIGNAL_PIPE_H_
#define GPUCTL_CLIENT_SIGNAL_PIPE_H_

#include <initializer_list>
#include <vector>

#include "absl/status/statusor.h"

namespace gpuctl {

// At most one exists at a time. The previous dispositions come back with the destructor.
class SignalPipe {
 public:
  // A SIGHUP that is ignored, as below nohup, stays so.
  static absl::StatusOr<SignalPipe> Install(std::initializer_list<int> signals);
  SignalPipe(SignalPipe&& other) noexcept;
  SignalPipe& operator=(SignalPipe&&) = delete;
  ~SignalPipe();

  // Readable when a signal has come.
  int fd() const { return fd_; }
  // The signals since the last call, in order.
  std::vector<int> Take();

 private:
  explicit SignalPipe(int fd) : fd_(fd) {}
  int fd_ = -1;
  std::vector<int> signals_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SIGNAL_PIPE_H_
