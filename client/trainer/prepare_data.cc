#include "client/trainer/prepare_data.h"

#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "client/base/exit_codes.h"
#include "client/terminal/console.h"
#include "client/trainer/try_trainer.h"
#include "common/base/status_macros.h"
#include "common/process/signal_pipe.h"

namespace gpuctl {

namespace {

// A line for each bad row; the error has one line.
absl::Status ListBadRows(const CommandContext& context, const absl::Status& status) {
  const std::vector<std::string> lines = absl::StrSplit(status.message(), '\n');
  if (lines.size() == 1 || context.json()) return status;
  for (size_t i = 1; i < lines.size(); ++i) context.Note(lines[i], Tone::kWarning);
  return WithHint(absl::Status(status.code(), lines[0]), HintOf(status));
}

}  // namespace

absl::StatusOr<trainer::PrepareReport> PrepareData(const CommandContext& context,
                                                   trainer::PrepareOptions options) {
  ASSIGN_OR_RETURN(SignalPipe signals, SignalPipe::Install({SIGINT, SIGTERM, SIGHUP},
                                                           SignalPipe::WaitingCall::kRestarted));
  options.stop = [&signals] { return SignalCame(signals); };
  std::optional<trainer::PrepareReport> report;
  const absl::Status done = TryTrainer([&] { report = trainer::Prepare(options); });
  if (!done.ok()) return ListBadRows(context, done);
  if (report.has_value()) return *std::move(report);
  return InterruptedBy(signals.Take(), "prepare: interrupted; nothing was written");
}

}  // namespace gpuctl
