#include "client/rent/interruptible_hooks.h"

#include <csignal>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

InterruptibleHooks::InterruptibleHooks(CommandContext& context) {
  absl::StatusOr<SignalPipe> signals = SignalPipe::Install({SIGINT, SIGTERM, SIGHUP});
  if (signals.ok()) signals_.emplace(*std::move(signals));
  hooks_.progress = [&context](absl::string_view line) { context.Say(line); };
  hooks_.cancelled = [this] {
    cancelled_ = cancelled_ || (signals_.has_value() && !signals_->Take().empty());
    return cancelled_;
  };
}

}  // namespace gpuctl
