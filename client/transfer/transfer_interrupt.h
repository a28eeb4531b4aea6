// Ctrl-C during a transfer: the program ends and says what stays, and which command goes on.
#ifndef GPUCTL_CLIENT_TRANSFER_TRANSFER_INTERRUPT_H_
#define GPUCTL_CLIENT_TRANSFER_TRANSFER_INTERRUPT_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "client/base/wake_pipe.h"
#include "client/runs/context.h"
#include "common/process/signal_pipe.h"

namespace gpuctl {

// While it lives, a SIGINT, SIGTERM or SIGHUP ends the process with the exit code of an
// interruption. Received and sent parts stay where they are. Used by one thread.
class TransferInterrupt {
 public:
  // `what` is the text before the colon ("pull NAME"), `stays` says what is where now, and `hint`
  // names the command that goes on. `before` (empty: nothing) is called first, on a thread of its
  // own, while the transfer may go on. Make it before there are other threads.
  static absl::StatusOr<std::unique_ptr<TransferInterrupt>> Install(
      const CommandContext& context, const std::string& what, const std::string& stays,
      std::string hint, std::function<void()> before = nullptr);
  ~TransferInterrupt();
  TransferInterrupt(const TransferInterrupt&) = delete;
  TransferInterrupt& operator=(const TransferInterrupt&) = delete;

 private:
  TransferInterrupt(const CommandContext& context, SignalPipe signals, std::string message,
                    std::string hint, std::function<void()> before);
  void Wait();

  const CommandContext& context_;
  SignalPipe signals_;
  const std::string message_, hint_;
  const std::function<void()> before_;
  WakePipe over_;
  std::thread waiter_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TRANSFER_TRANSFER_INTERRUPT_H_
