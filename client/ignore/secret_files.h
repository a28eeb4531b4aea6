// Recognizes files that hold keys and passwords by their usual names.
#ifndef GPUCTL_CLIENT_IGNORE_SECRET_FILES_H_
#define GPUCTL_CLIENT_IGNORE_SECRET_FILES_H_

#include "absl/strings/string_view.h"

namespace gpuctl {

// True when the file at `path` (relative, no directory) looks like a secret by its name: `.env` and
// its variants but not their examples, private keys (`*.pem`, `*.key`, `*.p12`, `id_ed25519`, …),
// and files where well-known programs keep passwords and tokens (`.netrc`, `.aws/credentials`,
// `credentials.json`, …). Ignores the case of ASCII letters.
bool LooksLikeSecret(absl::string_view path);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_IGNORE_SECRET_FILES_H_
