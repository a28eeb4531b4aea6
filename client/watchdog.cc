#include "client/watchdog.h"

namespace gpuctl {

Watchdog::Watchdog(Link& link, Clock& clock)
    : link_(link), clock_(clock), thread_([this] { Run(); }) {}

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
    changed_.WaitFor(mutex_, kLookEvery);
    if (stop_) return;
    const absl::Duration now = clock_.SinceBoot();
    if (now - last_look > kSlept || link_.Silence() > kDeadAfter) {
      link_.Break();
      return;
    }
    last_look = now;
  }
}

}  // namespace gpuctl
