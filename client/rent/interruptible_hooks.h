// Hooks of renting and releasing for a user at a terminal.
#ifndef GPUCTL_CLIENT_RENT_INTERRUPTIBLE_HOOKS_H_
#define GPUCTL_CLIENT_RENT_INTERRUPTIBLE_HOOKS_H_

#include <optional>

#include "client/runs/context.h"
#include "common/process/signal_pipe.h"
#include "provisioning/rental/rental.h"

namespace gpuctl {

// Hooks that write progress to stderr. While the object lives, Ctrl-C, kill and a closed terminal
// cancel the work instead of ending the process.
class InterruptibleHooks {
 public:
  explicit InterruptibleHooks(CommandContext& context);
  InterruptibleHooks(const InterruptibleHooks&) = delete;
  InterruptibleHooks& operator=(const InterruptibleHooks&) = delete;
  const RentalHooks& hooks() const { return hooks_; }

 private:
  std::optional<SignalPipe> signals_;
  bool cancelled_ = false;
  RentalHooks hooks_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RENT_INTERRUPTIBLE_HOOKS_H_
