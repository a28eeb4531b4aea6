// A market's words for people.
#ifndef GPUCTL_PROVISIONING_REST_PRINTABLE_H_
#define GPUCTL_PROVISIONING_REST_PRINTABLE_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace gpuctl {

// Returns `text` for a message or a table: one line of printable UTF-8, at most `limit` bytes.
std::string PrintableText(absl::string_view text, size_t limit = 300);

// Returns the beginning of an answer's body for a message, at most `limit` bytes. Secrets in JSON,
// whole or torn, are hidden.
std::string BodyInWords(absl::string_view body, size_t limit);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_REST_PRINTABLE_H_
