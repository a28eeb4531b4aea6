// Trees stored on the node by content. In the directory `trees` (blobs/trees) a tree is a directory
// named by its manifest's digest, with <digest>.manifest beside it; the directory appears by one
// rename, after everything in it and the manifest were verified and synced. Trees share the content
// they have in common by hard links. The time a manifest was modified is that of the tree's last
// use.
//
// Every stored file has the same time of modification. One that has another was written to, through
// a hard link that a job was given, and counts as gone.
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

// 64 lower-case hex digits. Digests from a peer are checked with this before they become paths.
bool IsManifestDigest(absl::string_view digest);

// Whether a file that was linked from the store, of which `info` is known, was not written to
// since.
bool IsStoredContent(const struct stat& info);

bool HasStoredTree(const std::string& trees, absl::string_view digest);
// The same, and counts as a use of it.
bool UseStoredTree(const std::string& trees, absl::string_view digest);

// Publishes the tree that `builder` has finished. OK also when somebody else published the same
// tree first.
absl::Status PublishTree(const std::string& trees, const std::string& digest, TreeBuilder& builder);

// Copies a stored tree to the new directory `to`, and syncs the copy; its manifest goes to the file
// `manifest_to` unless that is empty. NOT_FOUND when it is not stored; DATA_LOSS when what is
// stored is no longer what its manifest says: it is then removed, and can be pushed again. On error
// nothing is left at `to`.
absl::Status CopyStoredTree(const std::string& trees, absl::string_view digest,
                            const std::string& to, const std::string& manifest_to = "");

// The same with hard links instead of copies, for a tree that is not written to.
absl::Status LinkStoredTree(const std::string& trees, absl::string_view digest,
                            const std::string& to);

// Gives the builder what stored trees have of it, the ones used last first.
absl::Status TakeFromStoredTrees(const std::string& trees, TreeBuilder& builder, Reuse how);

// Held shared by whoever reads the store, exclusively by whoever sweeps it. Waits.
absl::StatusOr<UniqueFd> LockTreeStore(const std::string& trees, bool exclusive);

// Removes the trees used least recently, and abandoned pushes, until at most `max_bytes` are in the
// store. What was used in the last `pinned` stays. Returns the bytes it freed.
struct SweepOptions {
  int64_t max_bytes = 0;
  int64_t pinned_s = int64_t{24} * 3600;
  int64_t now_s = 0;  // Unix time
};
absl::StatusOr<int64_t> SweepTreeStore(const std::string& trees, const SweepOptions& options);

// Sweeps to what a node allows its store: a quarter of the file system, less what is wanting to a
// tenth of it being free. Does nothing when there is room and the last sweep is less than ten
// minutes old.
absl::Status SweepIfDue(const std::string& trees, Clock& clock);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_TREES_TREE_STORE_H_
