// Manifests of trees: what a directory holds, by content.
#ifndef GPUCTL_COMMON_MANIFEST_H_
#define GPUCTL_COMMON_MANIFEST_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {

constexpr int64_t kMaxManifestBytes = int64_t{256} << 20;  // serialized
constexpr int64_t kMaxManifestEntries = 4'000'000;

// The deterministic serialization.
std::string SerializeManifest(const gpuctl::v1::Manifest& manifest);

// Hex sha256 of the manifest's deterministic serialization.
std::string ManifestDigest(const gpuctl::v1::Manifest& manifest);

// INVALID_ARGUMENT unless entries are sorted, unique and safe: relative paths without "", "." or
// ".." components or NUL, at most 4096 bytes; modes within 0777; sizes >= 0; every parent of an
// entry is a directory entry or absent (never a file or a symlink); symlink targets non-empty;
// files with a sha256 of 32 bytes.
absl::Status ValidateManifest(const gpuctl::v1::Manifest& manifest);

// A valid manifest, or INVALID_ARGUMENT. Each entry is judged as it is read, so hostile bytes cost
// no more memory than what was valid before them.
absl::StatusOr<gpuctl::v1::Manifest> ParseManifest(absl::string_view bytes);

// The sum of the files' sizes.
int64_t ContentBytes(const gpuctl::v1::Manifest& manifest);

// True when `path` is relative, non-empty and has no "", "." or ".." component and no NUL.
bool IsSafeRelativePath(absl::string_view path);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_MANIFEST_H_
