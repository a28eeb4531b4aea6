// A FakeClock for subjects that wait in the test's own thread: a sleep moves it.
#ifndef GPUCTL_TESTS_FAKES_STEPPING_CLOCK_H_
#define GPUCTL_TESTS_FAKES_STEPPING_CLOCK_H_

#include "common/fake_clock.h"

namespace gpuctl {

class SteppingClock : public FakeClock {
 public:
  void SleepFor(absl::Duration duration) override { Advance(duration); }
};

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_FAKES_STEPPING_CLOCK_H_
