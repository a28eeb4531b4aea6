// Trees stored on the node by content. In the directory `trees` (blobs/trees) a tree is a directory
// named by its manifest's digest, with <digest>.manifest beside it; the directory appears by one
// rename, after everything in it and the manifest were verified and synced. Trees share common
// content by hard links. The modification time of a manifest is the time of the tree's last use.
//
// Jobs may have hard links to stored files and write to them. agent/store/tree_trust.h tells which
// files may have been written to; these are read again before the store gives them to anybody.
#ifndef GPUCTL_AGENT_STORE_TREE_STORE_H_
#define GPUCTL_AGENT_STORE_TREE_STORE_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agent/store/tree_trust.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/tree/manifest.h"
#include "common/tree/tree_builder.h"

namespace gpuctl {

// True for 64 lower-case hex digits. Check digests from a peer with this before they become paths.
bool IsManifestDigest(absl::string_view digest);

bool HasStoredTree(const std::string& trees, absl::string_view digest);
// Checks the same and counts as a use of the tree.
bool UseStoredTree(const std::string& trees, absl::string_view digest);

// Gives the builder the content that stored trees have, most recently used trees first. Returns the
// identities that linked files had then, by the index of their entries; for other entries nothing.
absl::StatusOr<StoredIdentities> TakeFromStoredTrees(const std::string& trees, TreeBuilder& builder,
                                                     Reuse how);

// Publishes the finished tree of `builder`, which has taken the files of `taken` from stored trees.
// OK also when somebody else published the same tree first. DATA_LOSS when a job wrote to a file
// meanwhile.
absl::Status PublishTree(const std::string& trees, const std::string& digest, TreeBuilder& builder,
                         StoredIdentities taken);

// Copies a stored tree to the new directory `to` and syncs the copy. Its manifest goes to the file
// `manifest_to`, unless that is empty. NOT_FOUND when it is not stored. DATA_LOSS when the stored
// tree no longer matches its manifest; it is then set aside and can be pushed again. On error
// nothing is left at `to`.
absl::Status CopyStoredTree(const std::string& trees, absl::string_view digest,
                            const std::string& to, const std::string& manifest_to = "");

// Does the same with hard links instead of copies, for a tree that nobody writes to.
absl::Status LinkStoredTree(const std::string& trees, absl::string_view digest,
                            const std::string& to);

// Ways to give a tree to a job that shall not write to it.
struct GiveOptions {
  // False: as where files cannot share blocks (reflinks).
  bool may_clone = true;
  // True when jobs cannot write to a file whose mode forbids it, unless they change the mode. Then
  // such files are always linked.
  bool modes_bind = false;
  // Without modes_bind: returns the inodes that somebody who may still run has links to. Only other
  // files are linked; these are copied.
  std::function<absl::StatusOr<std::set<uint64_t>>()> lent;
  // Without modes_bind: a file to which the inodes of linked files are appended (uint64_t, in the
  // order of the machine), durably and before there is a link.
  std::string note;
};

// True when a mode binds processes of this user: root may write to any file.
bool ModesBind();

// Gives a job the tree at `to` so that nothing written there is seen by another job that runs, nor
// by a later one: with shared blocks where the file system can, else with hard links to the files
// that no other job has, else with copies. Otherwise as CopyStoredTree. RESOURCE_EXHAUSTED when
// there is no room for the copies.
absl::Status GiveStoredTree(const std::string& trees, absl::string_view digest,
                            const std::string& to, const std::string& manifest_to,
                            const GiveOptions& options);

// Unlinks the files below the directory `from_fd`, where GiveStoredTree put the tree, as far as
// nobody wrote to them. Unlike other unlinks this spares the next user of the tree the reading of
// them. Only for a job that is over.
void TakeBackStoredTree(const std::string& trees, absl::string_view digest, int from_fd);

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

#endif  // GPUCTL_AGENT_STORE_TREE_STORE_H_
