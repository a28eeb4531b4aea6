// Hiding secrets in an exchange with a provider. Keys, tokens and everything that a user put into
// the environment or start script of a machine become "[hidden]". Pure functions.
#ifndef GPUCTL_PROVISIONING_HTTP_REDACT_H_
#define GPUCTL_PROVISIONING_HTTP_REDACT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gpuctl {

// Returns `url` without user, password, fragment, and the values of query parameters that name a
// secret.
std::string RedactUrl(absl::string_view url);

// Returns `text` as JSON writes it between quotes.
std::string JsonEscaped(absl::string_view text);

// Returns the texts that RedactBody would replace, and of a login its words, also as JSON writes
// them; none for a text that is not JSON, and none of less than six characters.
std::vector<std::string> SecretTexts(absl::string_view body);

// Returns a JSON text with its secrets replaced, at any depth. For any other text returns only its
// size, because a secret could be anywhere in it.
std::string RedactBody(absl::string_view body);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_HTTP_REDACT_H_
