// Trees stored on the node by content. In the directory `trees` (blobs/trees) a tree is a directory
// named by its manifest's digest, with <digest>.manifest beside it; the directory appears by one
// rename, after everything in it and the manifest were verified and synced. Trees share common
// content by hard links. The modification time of a manifest is the time of the tree's last use.
//
// Every stored file has the same modification time. A file with another time was written to,
// through a hard link that a job has, and counts as missing.
#ifndef GPUCTL_AGENT_TREES_TREE_STORE_H_
#define GPUCTL_AGENT_TREES_TREE_STORE_H_

#include <sys/stat.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/tree/manifest.h"
#include "common/tree/tree_builder.h"

namespace gpuctl {

// True for 64 lower-case hex digits. Check digests from a peer with this before they become paths.
bool IsManifestDigest(absl::string_view digest);

// True when a file linked from the store, whose stat is `info`, was not written to since.
bool IsStoredContent(const struct stat& info);

bool HasStoredTree(const std::string& trees, absl::string_view digest);
// Checks the same and counts as a use of the tree.
bool UseStoredTree(const std::string& trees, absl::string_view digest);

// Publishes the finished tree of `builder`. OK also when somebody else published the same tree
// first.
absl::Status PublishTree(const std::string& trees, const std::string& digest, TreeBuilder& builder);

// Copies a stored tree to the new directory `to` and syncs the copy. Its manifest goes to the file
// `manifest_to`, unless that is empty. NOT_FOUND when it is not stored. DATA_LOSS when the stored
// tree no longer matches its manifest; it is then removed and can be pushed again. On error nothing
// is left at `to`.
absl::Status CopyStoredTree(const std::string& trees, absl::string_view digest,
                            const std::string& to, const std::string& manifest_to = "");

// Does the same with hard links instead of copies, for a tree that nobody writes to.
absl::Status LinkStoredTree(const std::string& trees, absl::string_view digest,
                            const std::string& to);

// Gives the builder the content that stored trees have, most recently used trees first.
absl::Status TakeFromStoredTrees(const std::string& trees, TreeBuilder& builder, Reuse how);

// Takes the store's lock: shared to read the store, exclusive to sweep it. Waits.
absl::StatusOr<UniqueFd> LockTreeStore(const std::string& trees, bool exclusive);

// Removes the least recently used trees, and abandoned pushes, until the store has at most
// `max_bytes`. Keeps what was used in the last `pinned_s` seconds. Returns the freed bytes.
struct SweepOptions {
  int64_t max_bytes = 0;
  int64_t pinned_s = int64_t{24} * 3600;
  int64_t now_s = 0;  // Unix time
};
absl::StatusOr<int64_t> SweepTreeStore(const std::string& trees, const SweepOptions& options);

// Sweeps the store to its allowed size: a quarter of the file system, minus the bytes missing for a
// tenth of it to be free. Does nothing when there is room and the last sweep is less than ten
// minutes old.
absl::Status SweepIfDue(const std::string& trees, Clock& clock);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_TREES_TREE_STORE_H_
