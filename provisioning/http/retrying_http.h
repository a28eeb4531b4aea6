#ifndef GPUCTL_PROVISIONING_HTTP_RETRYING_HTTP_H_
#define GPUCTL_PROVISIONING_HTTP_RETRYING_HTTP_H_

#include <memory>
#include <optional>

#include "common/base/clock.h"
#include "provisioning/http/http.h"

namespace gpuctl {

struct RetryPolicy {
  absl::Duration first_wait = absl::Seconds(1);
  absl::Duration longest_wait = absl::Seconds(15);
  // The longest time from the first attempt to the beginning of the last.
  absl::Duration total = absl::Seconds(60);
  int max_attempts = 6;
};

// Returns an Http that sends a failed request again after a wait: any request but a create after
// 429, which says that nothing was done, and a repeatable one also after 5xx, UNAVAILABLE, UNKNOWN
// and DEADLINE_EXCEEDED. It waits at least as long as Retry-After says. When the policy does not
// allow the wait, it returns the last answer at once, also a 429.
std::unique_ptr<Http> MakeRetryingHttp(std::unique_ptr<Http> inner, Clock& clock,
                                       RetryPolicy policy);

// Returns the wait that a reply asks for: by Retry-After, in seconds or as a date, or by RateLimit
// ("name";r=0;t=55: nothing remains, and there is more in 55 s;
// draft-ietf-httpapi-ratelimit-headers). Absent when it asks for none.
std::optional<absl::Duration> RetryAfter(const HttpResponse& response, absl::Time now);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_HTTP_RETRYING_HTTP_H_
