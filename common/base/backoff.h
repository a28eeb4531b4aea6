#ifndef GPUCTL_COMMON_BASE_BACKOFF_H_
#define GPUCTL_COMMON_BASE_BACKOFF_H_

#include <random>

#include "absl/time/time.h"

namespace gpuctl {

// Waits that double from `first` to `longest`, each spread by up to a quarter, so that many clients
// do not return in step. Not thread-safe.
class Backoff {
 public:
  Backoff(absl::Duration first, absl::Duration longest);
  absl::Duration Next();
  void Reset() { next_ = first_; }

 private:
  const absl::Duration first_;
  const absl::Duration longest_;
  absl::Duration next_;
  std::minstd_rand random_;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BASE_BACKOFF_H_
