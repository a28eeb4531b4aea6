// The simulated time: it runs `speed` times as fast as real time, and jumps on request.
#ifndef GPUCTL_TESTS_CLOUDSIM_SIM_CLOCK_H_
#define GPUCTL_TESTS_CLOUDSIM_SIM_CLOCK_H_

#include <cstdint>
#include <string>

#include "common/base/clock.h"

namespace gpuctl::cloudsim {

// The clock. Not thread safe: it is part of the world, under its lock.
class SimClock {
 public:
  explicit SimClock(double speed);
  // Returns milliseconds since 1970; it starts at the machine's own time.
  int64_t NowMs() const;
  // Returns milliseconds of real time since a fixed moment; jumps do not count.
  static int64_t RealMs();
  void Advance(double seconds);
  void SetSpeed(double speed);
  double speed() const { return speed_; }

 private:
  double speed_;
  double base_ms_;  // simulated time at `real_ms_`
  double real_ms_;
};

// Returns a time such as "2026-08-20T06:16:19.436Z".
std::string Rfc3339(int64_t ms);
// Returns the milliseconds of such a time; -1 for other text.
int64_t ParseRfc3339(const std::string& text);

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_SIM_CLOCK_H_
