#include "client/streams/watchdog.h"

#include <algorithm>

namespace gpuctl {

Watchdog::Watchdog(Link& link, absl::Duration dead_after, Clock& clock)
    : link_(link), dead_after_(dead_after), clock_(clock), thread_([this] { Run(); }) {}

Watchdog::~Watchdog() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void Watchdog::Run() {
  MutexLock lock(mutex_);
  absl::Duration last_look = clock_.SinceBoot();
  while (!stop_) {
    changed_.WaitFor(mutex_, std::min(dead_after_ / 4, absl::Seconds(1)));
    if (stop_) return;
    const absl::Duration now = clock_.SinceBoot();
    if (now - last_look > kSlept || link_.Silence() > dead_after_) {
      link_.Break();
      return;
    }
    last_look = now;
  }
}

}  // namespace gpuctl
