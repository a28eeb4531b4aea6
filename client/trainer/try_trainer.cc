#include "client/trainer/try_trainer.h"

#include <poll.h>

#include <csignal>
#include <new>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "common/base/status_macros.h"
#include "trainer/base/error.h"

namespace gpuctl {

absl::Status TryTrainer(const std::function<void()>& work) {
  try {
    work();
  } catch (const trainer::Error& error) {
    if (error.code() == trainer::ExitCode::kBadConfig)
      return UsageError(error.what(), error.hint());
    const absl::Status status = absl::FailedPreconditionError(error.what());
    return error.hint().empty() ? status : WithHint(status, error.hint());
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("there is not enough memory");
  }
  return absl::OkStatus();
}

absl::Status TryLongWork(absl::string_view verb,
                         const std::function<void(const std::function<void()>& check)>& work) {
  struct Stopped {};
  ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGINT, SIGTERM, SIGHUP},
                                                           SignalPipe::WaitingCall::kRestarted));
  const std::function<void()> check = [&signals] {
    if (SignalCame(signals)) throw Stopped();
  };
  try {
    RETURN_IF_ERROR(TryTrainer([&] { work(check); }));
  } catch (const Stopped&) {
    return InterruptedBy(signals.Take(), absl::StrCat(verb, ": interrupted; nothing was written"));
  }
  return absl::OkStatus();
}

absl::Status InterruptedBy(const std::vector<int>& caught, absl::string_view message) {
  const int signal = caught.empty() ? SIGINT : caught[0];
  return WithExitCode(absl::CancelledError(message),
                      signal == SIGINT ? kExitInterrupted : static_cast<ExitCode>(128 + signal));
}

bool SignalCame(const SignalPipe& signals) {
  struct pollfd caught = {signals.fd(), POLLIN, 0};
  return poll(&caught, 1, 0) > 0;
}

}  // namespace gpuctl
