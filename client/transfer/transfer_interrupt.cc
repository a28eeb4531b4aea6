#include "client/transfer/transfer_interrupt.h"

#include <poll.h>

#include <csignal>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/terminal/console.h"
#include "common/base/status_macros.h"

namespace gpuctl {

TransferInterrupt::TransferInterrupt(const CommandContext& context, SignalPipe signals,
                                     std::string message, std::string hint,
                                     std::function<void()> before)
    : context_(context),
      signals_(std::move(signals)),
      message_(std::move(message)),
      hint_(std::move(hint)),
      before_(std::move(before)) {}

absl::StatusOr<std::unique_ptr<TransferInterrupt>> TransferInterrupt::Install(
    const CommandContext& context, const std::string& what, const std::string& stays,
    std::string hint, std::function<void()> before) {
  // System calls of the transfer go on: only the waiter acts on a signal.
  ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGINT, SIGTERM, SIGHUP},
                                                           SignalPipe::WaitingCall::kRestarted));
  std::unique_ptr<TransferInterrupt> interrupt(new TransferInterrupt(
      context, std::move(signals), absl::StrCat(what, ": interrupted; ", stays), std::move(hint),
      std::move(before)));
  RETURN_IF_ERROR(interrupt->over_.Open());
  interrupt->waiter_ = std::thread([raw = interrupt.get()] { raw->Wait(); });
  return interrupt;
}

TransferInterrupt::~TransferInterrupt() {
  over_.Wake();
  if (waiter_.joinable()) waiter_.join();
}

void TransferInterrupt::Wait() {
  while (true) {
    struct pollfd fds[] = {{over_.fd(), POLLIN, 0}, {signals_.fd(), POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) continue;
    if ((fds[0].revents & POLLIN) != 0) return;
    const std::vector<int> caught = signals_.Take();
    if (caught.empty()) continue;
    const auto code =
        caught[0] == SIGINT ? kExitInterrupted : static_cast<ExitCode>(128 + caught[0]);
    if (before_) before_();
    ExitAtOnce(context_, WithExitCode(WithHint(absl::CancelledError(message_), hint_), code));
  }
}

}  // namespace gpuctl
