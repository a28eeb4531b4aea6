// One HTTP exchange. Retries, rate limits and traces are Http objects around the one that uses the
// network.
#ifndef GPUCTL_PROVISIONING_HTTP_HTTP_H_
#define GPUCTL_PROVISIONING_HTTP_HTTP_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace gpuctl {

struct HttpRequest {
  std::string method;  // upper case
  std::string url;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  absl::Duration timeout = absl::Seconds(30);
  // The class of requests that the provider limits together ("create", "list"); empty: all its
  // requests.
  std::string rate_class;
  // True when sending it twice has the same effect as sending it once; never for a create.
  bool repeatable = false;
  // True for what makes something that bills. Nothing repeats it, not even after an answer of 429:
  // its sender looks first whether something was made nevertheless.
  bool creates = false;
  // True for an answer that has no end, such as a stream of events: what came of it within
  // `timeout` is the answer.
  bool endless = false;
};

struct HttpResponse {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;
};

// Safe to use from several threads.
class Http {
 public:
  virtual ~Http() = default;
  // Sends `request` and returns the answer, whatever its HTTP status. UNAVAILABLE: the request was
  // not sent (no such host, no connection). UNKNOWN: it was sent, at least in part, and no whole
  // answer came. DEADLINE_EXCEEDED: the same, because of the timeout.
  virtual absl::StatusOr<HttpResponse> Send(const HttpRequest& request) = 0;
};

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_HTTP_HTTP_H_
