#ifndef GPUCTL_PROVISIONING_HTTP_DATED_HTTP_H_
#define GPUCTL_PROVISIONING_HTTP_DATED_HTTP_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "provisioning/http/http.h"

namespace gpuctl {

// How far this computer's clock is ahead of a service's, by the Date of its newest answer, exact to
// a few seconds. Safe to use from several threads.
class ClockSkew {
 public:
  void Set(absl::Duration ahead) { ms_ = absl::ToInt64Milliseconds(ahead); }
  // Absent: no answer had a date.
  std::optional<absl::Duration> Get() const {
    const int64_t ms = ms_;
    if (ms == kUnknown) return std::nullopt;
    return absl::Milliseconds(ms);
  }

 private:
  static constexpr int64_t kUnknown = std::numeric_limits<int64_t>::min();
  std::atomic<int64_t> ms_ = kUnknown;
};

// Returns an Http that notes in `skew` what the Date header (RFC 9110, 6.6.1) of each answer says.
std::unique_ptr<Http> MakeDatedHttp(std::unique_ptr<Http> inner, Clock& clock,
                                    std::shared_ptr<ClockSkew> skew);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_HTTP_DATED_HTTP_H_
