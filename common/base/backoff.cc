#include "common/base/backoff.h"

#include <algorithm>

namespace gpuctl {

Backoff::Backoff(absl::Duration first, absl::Duration longest)
    : first_(first), longest_(longest), next_(first), random_(std::random_device{}()) {}

absl::Duration Backoff::Next() {
  const absl::Duration base = next_;
  next_ = std::min(next_ * 2, longest_);
  return base * std::uniform_real_distribution<double>(0.75, 1.25)(random_);
}

}  // namespace gpuctl
