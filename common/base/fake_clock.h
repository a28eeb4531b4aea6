// A Clock that stands still until a test moves it.
#ifndef GPUCTL_COMMON_BASE_FAKE_CLOCK_H_
#define GPUCTL_COMMON_BASE_FAKE_CLOCK_H_

#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace gpuctl {

// Safe from any thread.
class FakeClock : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::FromUnixSeconds(1'700'000'000)) : now_(start) {}

  absl::Time Now() override;
  absl::Duration SinceBoot() override;
  // Blocks until Advance has moved the clock past the end of the sleep.
  void SleepFor(absl::Duration duration) override;

  // Moves wall and boot time together and wakes sleepers that are due.
  void Advance(absl::Duration duration);
  // Moves wall time alone, as an administrator or NTP does.
  void JumpWall(absl::Duration duration);
  // Waits until `count` threads sleep. Without this a test could advance the clock before its
  // subject sleeps, and hang.
  void BlockUntilWaiters(int count);

 private:
  Mutex mutex_;
  CondVar changed_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_);
  absl::Duration since_boot_ ABSL_GUARDED_BY(mutex_) = absl::Seconds(1000);
  int waiters_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BASE_FAKE_CLOCK_H_
