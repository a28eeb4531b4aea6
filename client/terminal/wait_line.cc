#include "client/terminal/wait_line.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/quantity.h"
#include "client/terminal/line_assembler.h"
#include "client/terminal/terminal_size.h"

namespace gpuctl {
namespace {

constexpr std::chrono::seconds kRedrawEvery(1), kSayEvery(60);
constexpr absl::Duration kShowAfter = absl::Seconds(2);

}  // namespace

WaitLine::WaitLine(const Console& console, Clock& clock, std::string what)
    : console_(console), clock_(clock), what_(std::move(what)), begin_(clock.SinceBoot()) {
  if (console.json() || console.quiet) return;
  thread_ = std::thread([this] { Work(); });
}

WaitLine::~WaitLine() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
  }
  ends_.notify_all();
  thread_.join();
  if (console_.terminal.animation) console_.ShowWaiting("");
}

void WaitLine::Work() {
  const bool draws = console_.terminal.animation;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!ends_.wait_for(lock, draws ? kRedrawEvery : kSayEvery, [this] { return over_; })) {
    const absl::Duration passed = clock_.SinceBoot() - begin_;
    const std::string line = absl::StrCat(what_, ": ", HumanDuration(passed));
    if (!draws) {
      console_.Say(line);
    } else if (passed >= kShowAfter) {
      // The last column stays free, because some terminals wrap as soon as it is written.
      console_.ShowWaiting(TruncateToWidth(line, GetTerminalSize(STDERR_FILENO).columns - 1));
    }
  }
}

}  // namespace gpuctl
