#include "common/base/clock.h"

#include <time.h>

#include "absl/time/clock.h"

namespace gpuctl {
namespace {

#if defined(CLOCK_BOOTTIME)
constexpr clockid_t kBootClock = CLOCK_BOOTTIME;
#else
constexpr clockid_t kBootClock = CLOCK_MONOTONIC;
#endif

class RealClock : public Clock {
 public:
  absl::Time Now() override { return absl::Now(); }
  absl::Duration SinceBoot() override {
    timespec now{};
    clock_gettime(kBootClock, &now);
    return absl::DurationFromTimespec(now);
  }
  void SleepFor(absl::Duration duration) override { absl::SleepFor(duration); }
};

}  // namespace

Clock& Clock::Real() {
  static RealClock* const clock = new RealClock;
  return *clock;
}

}  // namespace gpuctl
