// Fuzzes a serialized manifest, and a checkpoint's manifest.json.
#include <cstdint>
#include <cstdlib>

#include "common/files/relative_path.h"
#include "common/job/checkpoint.h"
#include "common/tree/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto manifest = gpuctl::ParseManifest(std::string(bytes));
  if (manifest.ok()) {
    // An accepted manifest is valid, and parsing its own bytes gives the same.
    if (!gpuctl::ValidateManifest(*manifest).ok()) abort();
    const auto again = gpuctl::ParseManifest(manifest->bytes());
    if (!again.ok() || again->Digest() != manifest->Digest()) abort();
  }
  const auto checkpoint = gpuctl::ParseCheckpointManifest(bytes);
  if (checkpoint.ok()) {
    for (const gpuctl::CheckpointFile& file : checkpoint->files) {
      if (!gpuctl::IsSafeRelativePath(file.path) || file.size < 0) abort();
    }
  }
  return 0;
}
