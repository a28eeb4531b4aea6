// Takes the caller's own key out of a service's answers.
#ifndef GPUCTL_PROVISIONING_HTTP_KEYLESS_HTTP_H_
#define GPUCTL_PROVISIONING_HTTP_KEYLESS_HTTP_H_

#include <memory>

#include "provisioning/http/http.h"

namespace gpuctl {

// Returns an Http that replaces the request's keys (KeysOf) by "[hidden]" wherever an answer's body
// repeats them, so that no error text and no file has them.
std::unique_ptr<Http> MakeKeylessHttp(std::unique_ptr<Http> inner);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_HTTP_KEYLESS_HTTP_H_
