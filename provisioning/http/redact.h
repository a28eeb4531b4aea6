// What may be shown of an exchange with a provider: keys, tokens and whatever a user put into the
// environment or start script of a machine are replaced by "[hidden]". Pure.
#ifndef GPUCTL_PROVISIONING_HTTP_REDACT_H_
#define GPUCTL_PROVISIONING_HTTP_REDACT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace gpuctl {

// Without user, password, fragment, and the values of query parameters that name a secret.
std::string RedactUrl(absl::string_view url);

// A JSON text with the secrets in it replaced, at any depth; what is not JSON is described by its
// size alone, because nothing is known about where a secret would be in it.
std::string RedactBody(absl::string_view body);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_HTTP_REDACT_H_
