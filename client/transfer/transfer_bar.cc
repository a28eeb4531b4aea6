#include "client/transfer/transfer_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/progress_lines.h"
#include "client/base/quantity.h"
#include "client/terminal/console.h"
#include "client/terminal/line_assembler.h"
#include "client/terminal/panel_terminal.h"
#include "client/terminal/safe_text.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kShowAfter = absl::Milliseconds(500);
constexpr absl::Duration kRedraw = absl::Milliseconds(100);
constexpr absl::Duration kPlainLineEvery = absl::Seconds(10);
constexpr int kBarWidth = 20;

}  // namespace

std::string TransferLine(absl::string_view what, const TransferCount& count, absl::Duration passed,
                         int width) {
  const double share = count.total_bytes > 0 ? static_cast<double>(count.bytes) /
                                                   static_cast<double>(count.total_bytes)
                                             : 1;
  const int filled = static_cast<int>(std::floor(share * kBarWidth));
  const double seconds = absl::ToDoubleSeconds(passed);
  const double rate = seconds > 0 ? static_cast<double>(count.bytes) / seconds : 0;
  std::string line = absl::StrCat(
      what, what.empty() ? "" : " ", static_cast<int>(std::floor(share * 100)), " % [",
      std::string(static_cast<size_t>(filled), '#'),
      std::string(static_cast<size_t>(kBarWidth - filled), '-'), "] ", FormatBytes(count.bytes),
      " of ", FormatBytes(count.total_bytes), ", ", FormatBytes(static_cast<int64_t>(rate)), "/s");
  if (rate > 0 && count.bytes < count.total_bytes) {
    const double left = static_cast<double>(count.total_bytes - count.bytes) / rate;
    absl::StrAppend(&line, ", ", HumanDuration(absl::Seconds(std::ceil(left))), " left");
  }
  const int64_t files_left = count.total_files - count.files;
  if (files_left > 0)
    absl::StrAppend(&line, ", ", files_left, files_left == 1 ? " file" : " files");
  return width > 0 ? TruncateToWidth(MakeSafe(line), width) : line;
}

TransferBar::TransferBar(CommandContext& context, std::string what, bool quiet)
    : context_(context),
      what_(std::move(what)),
      for_caller_(context.json() && std::getenv(kProgressVariable) != nullptr),
      quiet_(quiet || context.quiet || (context.json() && !for_caller_)),
      begin_(context.clock.SinceBoot()),
      drawn_(begin_) {}

void TransferBar::Update(const TransferCount& count) {
  if (quiet_) return;
  const absl::Duration now = context_.clock.SinceBoot();
  if (for_caller_) {
    if (now - drawn_ < kRedraw) return;
    drawn_ = now;
    context_.PrintJobErrorBytes(
        absl::StrCat(MakeSafe(TransferLine(what_, count, now - begin_, 0)), "\n"));
    return;
  }
  if (!context_.terminal.animation) {
    if (now - drawn_ < kPlainLineEvery) return;
    drawn_ = now;
    context_.Say(TransferLine(what_, count, now - begin_, 0));
    return;
  }
  if (now - begin_ < kShowAfter || now - drawn_ < kRedraw) return;
  drawn_ = now;
  on_screen_ = true;
  // The last column stays free, because some terminals wrap as soon as it is written.
  const int width = GetTerminalSize(STDERR_FILENO).columns - 1;
  context_.RewriteLine(TransferLine(what_, count, now - begin_, width));
}

void TransferBar::Finish() {
  if (on_screen_) context_.RewriteLine("");
  on_screen_ = false;
}

}  // namespace gpuctl
