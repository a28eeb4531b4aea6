#ifndef GPUCTL_PROVISIONING_HTTP_CURL_HTTP_H_
#define GPUCTL_PROVISIONING_HTTP_CURL_HTTP_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "provisioning/http/http.h"

namespace gpuctl {

struct CurlHttpOptions {
  std::string user_agent = "gpuctl";
  // The timeout of name look-up, connection and TLS together; never longer than the request's own
  // timeout.
  absl::Duration connect_timeout = absl::Seconds(10);
  // The largest reply in bytes, unpacked. A longer one is UNKNOWN, as a torn one is.
  int64_t max_reply_bytes = 32 << 20;
  // The speed of the timeouts' clock as a multiple of the machine's clock.
  double speed = 1;
};

// Returns an Http that speaks to the network through libcurl: HTTP/1.1, TLS against the system's
// roots (or $SSL_CERT_FILE), the proxy of the environment, no redirects. FAILED_PRECONDITION where
// libcurl is not installed, INVALID_ARGUMENT for a malformed request, never UNAVAILABLE for one
// that may have been sent. A request that is not repeatable gets a connection of its own, because
// libcurl sends a request again when a kept connection turns out to be closed.
std::unique_ptr<Http> MakeCurlHttp(CurlHttpOptions options);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_HTTP_CURL_HTTP_H_
