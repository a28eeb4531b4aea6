#include "common/base/fake_clock.h"

namespace gpuctl {

absl::Time FakeClock::Now() {
  MutexLock lock(mutex_);
  return now_;
}

absl::Duration FakeClock::SinceBoot() {
  MutexLock lock(mutex_);
  return since_boot_;
}

void FakeClock::SleepFor(absl::Duration duration) {
  MutexLock lock(mutex_);
  if (!held_) {
    MoveBy(duration);
    return;
  }
  const absl::Duration end = since_boot_ + duration;
  ++waiters_;
  changed_.NotifyAll();
  while (since_boot_ < end) changed_.Wait(mutex_);
  --waiters_;
}

void FakeClock::HoldSleeps() {
  MutexLock lock(mutex_);
  held_ = true;
}

void FakeClock::Advance(absl::Duration duration) {
  MutexLock lock(mutex_);
  MoveBy(duration);
}

void FakeClock::MoveBy(absl::Duration duration) {
  now_ += duration;
  since_boot_ += duration;
  changed_.NotifyAll();
}

void FakeClock::JumpWall(absl::Duration duration) {
  MutexLock lock(mutex_);
  now_ += duration;
}

void FakeClock::BlockUntilWaiters(int count) {
  MutexLock lock(mutex_);
  while (waiters_ < count) changed_.Wait(mutex_);
}

}  // namespace gpuctl
