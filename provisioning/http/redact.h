// What may be shown of an exchange with a provider: keys, tokens and whatever a user put into the
// environment or start script of a machine are replaced by "[hidden]". Pure.
#ifndef GPUCTL_PROVISIONING_HTTP_REDACT_H_
#define GPUCTL_PROVISIONING_HTTP_REDACT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace gpuctl {

// Returns `url` without user, password, fragment, and the values of query parameters that name a
// secret.
std::string RedactUrl(absl::string_view url);

// Returns a JSON text with its secrets replaced, at any depth. Any other text is described by its
// size alone, because a secret could be anywhere in it.
std::string RedactBody(absl::string_view body);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_HTTP_REDACT_H_
