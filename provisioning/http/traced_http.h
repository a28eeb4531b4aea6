#ifndef GPUCTL_PROVISIONING_HTTP_TRACED_HTTP_H_
#define GPUCTL_PROVISIONING_HTTP_TRACED_HTTP_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "provisioning/http/http.h"

namespace gpuctl {

// Called from whichever thread sends.
using TraceSink = std::function<void(absl::string_view line)>;

// Returns an Http that tells `sink` one line an attempt: method, address, status or error,
// milliseconds, the provider's request id, and the beginning of an error's body. Secrets are hidden
// as redact.h says, and what stood in an Authorization header is hidden wherever it turns up.
std::unique_ptr<Http> MakeTracedHttp(std::unique_ptr<Http> inner, Clock& clock, TraceSink sink);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_HTTP_TRACED_HTTP_H_
