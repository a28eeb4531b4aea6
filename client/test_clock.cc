#include "client/test_clock.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace gpuctl {
namespace {

class FastClock : public Clock {
 public:
  FastClock(double speed, absl::Time since) : speed_(speed), since_(since) {}
  absl::Time Now() override { return since_ + (Real().Now() - since_) * speed_; }
  absl::Duration SinceBoot() override { return Real().SinceBoot() * speed_; }
  void SleepFor(absl::Duration duration) override { Real().SleepFor(duration / speed_); }
  double speed() const { return speed_; }

 private:
  const double speed_;
  const absl::Time since_;
};

// Null without the variable, and where it cannot be understood.
FastClock* TestClock() {
  static FastClock* const clock = []() -> FastClock* {
    const char* text = std::getenv("GPUCTL_TEST_CLOCK");
    if (text == nullptr) return nullptr;
    const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('@', 1));
    double speed = 0;
    int64_t since_ms = 0;
    if (!absl::SimpleAtod(parts.first, &speed) || !absl::SimpleAtoi(parts.second, &since_ms) ||
        !(speed > 0 && speed <= 1000)) {
      return nullptr;
    }
    return new FastClock(speed, absl::FromUnixMillis(since_ms));
  }();
  return clock;
}

}  // namespace

Clock& CommandClock() {
  if (FastClock* const clock = TestClock(); clock != nullptr) return *clock;
  return Clock::Real();
}

double CommandClockSpeed() {
  const FastClock* const clock = TestClock();
  return clock == nullptr ? 1 : clock->speed();
}

}  // namespace gpuctl
