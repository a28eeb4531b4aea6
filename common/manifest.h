// Manifests of trees: what a directory holds, by content.
#ifndef GPUCTL_COMMON_MANIFEST_H_
#define GPUCTL_COMMON_MANIFEST_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {

// Hex sha256 of the manifest's deterministic serialization.
std::string ManifestDigest(const gpuctl::v1::Manifest& manifest);

// INVALID_ARGUMENT unless entries are sorted, unique and safe: relative paths without "", "." or
// ".." components or NUL, at most 4096 bytes; modes within 0777; sizes >= 0; every parent of an
// entry is a directory entry or absent (never a file or a symlink); symlink targets non-empty.
absl::Status ValidateManifest(const gpuctl::v1::Manifest& manifest);

// True when `path` is relative, non-empty and has no "", "." or ".." component and no NUL.
bool IsSafeRelativePath(absl::string_view path);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_MANIFEST_H_
