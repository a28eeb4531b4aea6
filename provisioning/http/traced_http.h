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

// One line an attempt: method, address, status or error, milliseconds, the provider's request id,
// and of an error the body's beginning. Nothing secret: see redact.h; and whatever stood in an
// Authorization header is hidden wherever it turns up.
std::unique_ptr<Http> MakeTracedHttp(std::unique_ptr<Http> inner, Clock& clock, TraceSink sink);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_HTTP_TRACED_HTTP_H_
