// Access to the files of a stored tree, for the store's own code.
#ifndef GPUCTL_AGENT_STORE_STORED_FILES_H_
#define GPUCTL_AGENT_STORE_STORED_FILES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/files/dir_walk.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/tree/manifest.h"

namespace gpuctl {

// The modification time of every stored file, in Unix seconds: 2001-09-09. Older agents take a file
// with another time for one that was written to.
constexpr int64_t kStoredMtime = 1'000'000'000;

std::string StoredTreePath(const std::string& trees, absl::string_view digest);
std::string StoredManifestPath(const std::string& trees, absl::string_view digest);

// Reads the manifest of a stored tree. DATA_LOSS when it is not that of the digest.
absl::StatusOr<Manifest> ReadStoredManifest(const std::string& trees, absl::string_view digest);

// Removes a stored tree that does not match its manifest any more. The next push of it takes over
// what is still right.
void SetAsideStoredTree(const std::string& trees, absl::string_view digest);

// Calls `visit` with each file of the tree: its directory, name, entry and the entry's index.
// DATA_LOSS when a directory is missing.
template <typename Visit>
absl::Status ForEachFile(int root_fd, const Manifest& manifest, const Visit& visit) {
  DirWalk walk(root_fd);
  for (int64_t i = 0; i < manifest.size(); ++i) {
    const gpuctl::v1::FileEntry entry = manifest[i];
    if (entry.kind() != gpuctl::v1::FileEntry::KIND_FILE) continue;
    const absl::StatusOr<int> dir = walk.Open(ParentPath(entry.path()));
    // The trees visited here are complete.
    if (absl::IsNotFound(dir.status()) || absl::IsInvalidArgument(dir.status())) {
      return absl::DataLossError(dir.status().message());
    }
    if (!dir.ok()) return dir.status();
    RETURN_IF_ERROR(visit(*dir, BaseName(entry.path()), entry, i));
  }
  return absl::OkStatus();
}

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_STORE_STORED_FILES_H_
