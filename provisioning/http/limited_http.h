#ifndef GPUCTL_PROVISIONING_HTTP_LIMITED_HTTP_H_
#define GPUCTL_PROVISIONING_HTTP_LIMITED_HTTP_H_

#include <memory>

#include "common/base/clock.h"
#include "provisioning/http/http.h"
#include "provisioning/http/rate_bucket.h"

namespace gpuctl {

// Returns an Http that waits for its turn before each request, and makes all callers wait after an
// answer of 429. When the turn is more than a minute away it sends nothing and returns UNAVAILABLE.
std::unique_ptr<Http> MakeLimitedHttp(std::unique_ptr<Http> inner,
                                      std::unique_ptr<RateBuckets> buckets, Clock& clock);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_HTTP_LIMITED_HTTP_H_
