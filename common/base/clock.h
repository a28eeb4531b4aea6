// Time as a parameter. Everything that waits, retries or stamps takes a Clock; nothing else in the
// project reads the time or sleeps.
#ifndef GPUCTL_COMMON_BASE_CLOCK_H_
#define GPUCTL_COMMON_BASE_CLOCK_H_

#include "absl/time/time.h"

namespace gpuctl {

class Clock {
 public:
  virtual ~Clock() = default;
  // Returns wall time: for stamps and bills, never for order or durations. It may jump.
  virtual absl::Time Now() = 0;
  // Returns the time since boot, suspend included (CLOCK_BOOTTIME; macOS CLOCK_MONOTONIC, which
  // counts sleep).
  virtual absl::Duration SinceBoot() = 0;
  virtual void SleepFor(absl::Duration duration) = 0;

  // Returns the machine's clock, which is never destroyed and safe from any thread.
  static Clock& Real();
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BASE_CLOCK_H_
