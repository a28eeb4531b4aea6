// Limits on the requests to a provider by all gpuctl processes of this machine together.
#ifndef GPUCTL_PROVISIONING_HTTP_RATE_BUCKET_H_
#define GPUCTL_PROVISIONING_HTTP_RATE_BUCKET_H_

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace gpuctl {

// A bucket of `burst` tokens that gets a new one every `interval`. No interval: no limit.
struct RateLimit {
  absl::Duration interval;
  int burst = 1;
  // The least pause after the provider answered "too many requests", also when it names no time.
  absl::Duration penalty = absl::Seconds(5);
};

struct RateLimits {
  RateLimit all;                             // every request takes a token here
  std::map<std::string, RateLimit> classes;  // by HttpRequest::rate_class; taken beside `all`
  RateLimit other;                           // for each class that is not listed, on its own
};

// Keeps the time of each bucket's next token in a small file, which is locked while it is read and
// written. Time is the machine's time since boot, so a jump of the wall clock changes nothing. A
// file of an earlier boot, or one that cannot be understood, counts as full buckets. Safe from any
// thread.
class RateBuckets {
 public:
  // The directory of `path` is made when it is missing.
  RateBuckets(std::string path, RateLimits limits, Clock& clock);

  // Takes the tokens for one request of `rate_class` and returns the wait before it may be sent.
  // Takes nothing when that is longer than `patience`. Callers are served in order. Where the file
  // cannot be used, each request waits a whole interval.
  absl::Duration Take(absl::string_view rate_class, absl::Duration patience);
  // Records that the provider refused: nobody sends this class for `wait`, or for the class's
  // penalty when that is longer.
  void Refused(absl::string_view rate_class, absl::Duration wait);

 private:
  struct Bucket {
    std::string name;
    const RateLimit* limit;
  };
  std::vector<Bucket> BucketsOf(absl::string_view rate_class) const;
  // Calls `change` with the times since boot at which `buckets` are full again; it may move them.
  // False when the file cannot be used.
  template <typename Change>
  bool Update(const std::vector<Bucket>& buckets, Change change);

  const std::string path_;
  const RateLimits limits_;
  Clock& clock_;
  const std::string boot_;
  // Threads of this process take turns here, other processes at the file's lock.
  Mutex mutex_;
};

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_HTTP_RATE_BUCKET_H_
