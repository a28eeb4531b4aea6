#include "agent/results/writers_end.h"

#include <csignal>

namespace gpuctl {
namespace {

using Type = LifecycleEvent::Type;

// A process that SIGTERM ends writes nothing so long after `stopping` was recorded.
constexpr absl::Duration kDeathTakes = absl::Seconds(1);

// Returns the newest `stopping` line of the attempt; null when nobody stopped it.
const LifecycleEvent* StopOf(const Lifecycle& lifecycle, int attempt) {
  for (auto event = lifecycle.events.rbegin(); event != lifecycle.events.rend(); ++event) {
    if (event->type == Type::kStopping && event->attempt == attempt) return &*event;
  }
  return nullptr;
}

}  // namespace

WritersEnd WritersEndOf(const Lifecycle& lifecycle, absl::Duration grace) {
  WritersEnd end;
  const LifecycleEvent* const last = LastStateEvent(lifecycle);
  if (last == nullptr) return end;
  end.ended = absl::FromUnixMillis(last->time_ms);
  if (last->type != Type::kExited) return end;
  if (ShellExitCode(*last) == 0) return {};
  const LifecycleEvent* const stop = StopOf(lifecycle, last->attempt);
  if (stop == nullptr || !last->error.empty()) return end;
  const absl::Duration took = absl::Milliseconds(last->time_ms - stop->time_ms);
  // After the grace, SIGKILL may have ended any process of the job. A clock that was set back says
  // nothing.
  if (took < absl::ZeroDuration() || took >= grace) return end;
  if (last->signal == 0) return {};
  if (last->signal == SIGTERM) end.outlived = absl::FromUnixMillis(stop->time_ms) + kDeathTakes;
  return end;
}

}  // namespace gpuctl
