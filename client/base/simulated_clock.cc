#include "client/base/simulated_clock.h"

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace gpuctl {
namespace {

// A clock that does not read the wall clock, which may jump while a test runs.
class FastClock : public Clock {
 public:
  FastClock(double speed, absl::Time start, absl::Duration boot)
      : speed_(speed), start_(start), boot_(boot) {}
  absl::Time Now() override { return start_ + (Real().SinceBoot() - boot_) * speed_; }
  absl::Duration SinceBoot() override { return Real().SinceBoot() * speed_; }
  void SleepFor(absl::Duration duration) override { Real().SleepFor(duration / speed_); }
  double speed() const { return speed_; }

 private:
  const double speed_;
  const absl::Time start_;
  const absl::Duration boot_;
};

// Returns null when the variable is not set or cannot be parsed.
FastClock* TestClock() {
  static FastClock* const clock = []() -> FastClock* {
    const char* text = std::getenv("GPUCTL_TEST_CLOCK");
    if (text == nullptr) return nullptr;
    const std::vector<absl::string_view> parts = absl::StrSplit(text, '@');
    double speed = 0;
    int64_t start_ms = 0;
    int64_t boot_ms = 0;
    if (parts.size() != 3 || !absl::SimpleAtod(parts[0], &speed) ||
        !absl::SimpleAtoi(parts[1], &start_ms) || !absl::SimpleAtoi(parts[2], &boot_ms) ||
        !(speed > 0 && speed <= 1000)) {
      return nullptr;
    }
    return new FastClock(speed, absl::FromUnixMillis(start_ms), absl::Milliseconds(boot_ms));
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
