// Trees stored on the node by content. In the directory `trees` (blobs/trees) a tree is a directory
// named by its manifest's digest, with <digest>.manifest beside it; the directory appears by one
// rename, after everything in it and the manifest were verified and synced.
#ifndef GPUCTL_AGENT_TREE_STORE_H_
#define GPUCTL_AGENT_TREE_STORE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/staging_dir.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {

// 64 lower-case hex digits. Digests from a peer are checked with this before they become paths.
bool IsManifestDigest(absl::string_view digest);

bool HasStoredTree(const std::string& trees, absl::string_view digest);

// Publishes the tree that was verified and synced at `staging`/tree. OK also when somebody else
// published the same tree first.
absl::Status PublishTree(const std::string& trees, const gpuctl::v1::Manifest& manifest,
                         const StagingDir& staging);

// Copies a stored tree to the new directory `to`, and syncs the copy. NOT_FOUND when it is not
// stored; DATA_LOSS when what is stored is no longer what its manifest says (the caller's job
// cannot start from it). On error nothing is left at `to`.
absl::Status CopyStoredTree(const std::string& trees, absl::string_view digest,
                            const std::string& to);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_TREE_STORE_H_
