#include "agent/shim/control.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "common/job/lifecycle.h"

namespace gpuctl {
namespace {

constexpr size_t kMaxLineBytes = 1024;
constexpr char kNow[] = "now";

std::optional<ControlCommand> Parse(absl::string_view line) {
  ControlCommand command;
  if (absl::ConsumePrefix(&line, "stop ")) {
    if (line.empty()) return std::nullopt;
    const bool now = line == kNow;
    command.type = now ? ControlCommand::Type::kStopNow : ControlCommand::Type::kStop;
    command.reason = now ? kUserReason : std::string(line);
    return command;
  }
  if (absl::ConsumePrefix(&line, "signal ") && absl::SimpleAtoi(line, &command.signal) &&
      command.signal > 0 && command.signal < NSIG) {
    command.type = ControlCommand::Type::kSignal;
    return command;
  }
  return std::nullopt;
}

}  // namespace

std::vector<ControlCommand> ControlReader::Read() {
  std::vector<ControlCommand> commands;
  char buffer[4096];
  while (true) {
    const ssize_t got = read(fifo_.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return commands;
    partial_.append(buffer, static_cast<size_t>(got));
    size_t newline = 0;
    while ((newline = partial_.find('\n')) != std::string::npos) {
      if (auto command = Parse(absl::string_view(partial_).substr(0, newline))) {
        commands.push_back(*std::move(command));
      }
      partial_.erase(0, newline + 1);
    }
    if (partial_.size() > kMaxLineBytes) partial_.clear();
  }
}

}  // namespace gpuctl
