// A Clock whose sleeps end at once, for code on one thread that waits.
#ifndef GPUCTL_TESTS_SUPPORT_STEPPING_CLOCK_H_
#define GPUCTL_TESTS_SUPPORT_STEPPING_CLOCK_H_

#include <vector>

#include "common/base/clock.h"

namespace gpuctl {

class SteppingClock : public Clock {
 public:
  absl::Time Now() override { return now_; }
  absl::Duration SinceBoot() override { return since_boot_; }
  void SleepFor(absl::Duration duration) override {
    sleeps_.push_back(duration);
    Advance(duration);
  }
  void Advance(absl::Duration duration) {
    now_ += duration;
    since_boot_ += duration;
  }
  void JumpWall(absl::Duration duration) { now_ += duration; }
  // Returns the sleeps in order.
  const std::vector<absl::Duration>& sleeps() const { return sleeps_; }

 private:
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  absl::Duration since_boot_ = absl::Seconds(1000);
  std::vector<absl::Duration> sleeps_;
};

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_STEPPING_CLOCK_H_
