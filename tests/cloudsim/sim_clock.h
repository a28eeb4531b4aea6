// The simulated time: runs with real time, `speed` times as fast, and jumps when it is told to.
#ifndef GPUCTL_TESTS_CLOUDSIM_SIM_CLOCK_H_
#define GPUCTL_TESTS_CLOUDSIM_SIM_CLOCK_H_

#include <cstdint>
#include <string>

#include "common/base/clock.h"

namespace gpuctl::cloudsim {

// Not thread safe: part of the world, under its lock.
class SimClock {
 public:
  explicit SimClock(double speed);
  // Milliseconds since 1970, starting at the machine's own time.
  int64_t NowMs() const;
  // Milliseconds of real time since some moment; jumps do not count.
  static int64_t RealMs();
  void Advance(double seconds);
  void SetSpeed(double speed);
  double speed() const { return speed_; }

 private:
  double speed_;
  double base_ms_;  // simulated time at `real_ms_`
  double real_ms_;
};

// "2026-08-20T06:16:19.436Z"
std::string Rfc3339(int64_t ms);
// Milliseconds of such a time; -1 when it is none.
int64_t ParseRfc3339(const std::string& text);

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_SIM_CLOCK_H_
