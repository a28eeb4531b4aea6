#include "tests/cloudsim/sim_clock.h"

#include "absl/time/time.h"

namespace gpuctl::cloudsim {
namespace {

double RealNow() { return absl::ToDoubleMilliseconds(Clock::Real().SinceBoot()); }

}  // namespace

SimClock::SimClock(double speed)
    : speed_(speed),
      base_ms_(static_cast<double>(absl::ToUnixMillis(Clock::Real().Now()))),
      real_ms_(RealNow()) {}

int64_t SimClock::NowMs() const {
  return static_cast<int64_t>(base_ms_ + (RealNow() - real_ms_) * speed_);
}

int64_t SimClock::RealMs() { return static_cast<int64_t>(RealNow()); }

void SimClock::Advance(double seconds) { base_ms_ += seconds * 1000; }

void SimClock::SetSpeed(double speed) {
  const double now = RealNow();
  base_ms_ += (now - real_ms_) * speed_;
  real_ms_ = now;
  speed_ = speed;
}

std::string Rfc3339(int64_t ms) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromUnixMillis(ms), absl::UTCTimeZone());
}

int64_t ParseRfc3339(const std::string& text) {
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, &error)) return -1;
  return absl::ToUnixMillis(time);
}

}  // namespace gpuctl::cloudsim
