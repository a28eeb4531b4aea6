// One HTTP exchange. What retries, limits rates and traces are other Https around the one that
// speaks to the network.
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
  // What the provider limits together ("create", "list"); empty: its requests as a whole.
  std::string rate_class;
  // Asking twice is the same as asking once. Never true for what creates.
  bool repeatable = false;
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
  // Any answer, whatever its status, is OK. UNAVAILABLE: the request was not sent (no such host, no
  // connection). UNKNOWN: it was, at least in part, and no whole answer came. DEADLINE_EXCEEDED: as
  // UNKNOWN, because of the timeout.
  virtual absl::StatusOr<HttpResponse> Send(const HttpRequest& request) = 0;
};

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_HTTP_HTTP_H_
