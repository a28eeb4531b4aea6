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
  // From the first attempt to the beginning of the last.
  absl::Duration total = absl::Seconds(60);
  int max_attempts = 6;
};

// Sends again, after a wait, what may be sent again: after 429, which says that nothing was done,
// any request; after 5xx, UNAVAILABLE, UNKNOWN and DEADLINE_EXCEEDED only what is repeatable. Waits
// as long as Retry-After says. The last answer is the answer, also when it is a 429: when patience
// would take longer than the policy allows, it ends at once.
std::unique_ptr<Http> MakeRetryingHttp(std::unique_ptr<Http> inner, Clock& clock,
                                       RetryPolicy policy);

// The wait a reply asks for, by seconds or by date; absent when it does not.
std::optional<absl::Duration> RetryAfter(const HttpResponse& response, absl::Time now);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_HTTP_RETRYING_HTTP_H_
