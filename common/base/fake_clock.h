// A Clock that only a test, or a sleep of its subject, moves.
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
  // Moves the clock by `duration` and returns at once. A subject may sleep because of what other
  // processes of the machine do, as when it waits for one that is in exec; a sleep that blocked
  // would then hang a test that knows nothing of it. After HoldSleeps, blocks until Advance has
  // moved the clock past the end of the sleep.
  void SleepFor(absl::Duration duration) override;
  void HoldSleeps();

  // Moves wall and boot time together and wakes sleepers that are due.
  void Advance(absl::Duration duration);
  // Moves wall time alone, as an administrator or NTP does.
  void JumpWall(absl::Duration duration);
  // Waits until `count` threads sleep, after HoldSleeps. Without this a test could advance the
  // clock before its subject sleeps, and hang.
  void BlockUntilWaiters(int count);

 private:
  void MoveBy(absl::Duration duration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_);
  absl::Duration since_boot_ ABSL_GUARDED_BY(mutex_) = absl::Seconds(1000);
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  int waiters_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BASE_FAKE_CLOCK_H_
