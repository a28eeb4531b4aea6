#ifndef GPUCTL_PROVISIONING_HTTP_TRACED_HTTP_H_
#define GPUCTL_PROVISIONING_HTTP_TRACED_HTTP_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "provisioning/http/http.h"

namespace gpuctl {

// A function that takes trace lines. It is called on the sending thread.
using TraceSink = std::function<void(absl::string_view line)>;

// Returns an Http that gives `sink` one line for each attempt: method, address, status or error,
// milliseconds, the provider's request id, and the beginning of an error's body. It hides secrets
// as redact.h says, and the keys of its headers wherever they occur.
std::unique_ptr<Http> MakeTracedHttp(std::unique_ptr<Http> inner, Clock& clock, TraceSink sink);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_HTTP_TRACED_HTTP_H_
