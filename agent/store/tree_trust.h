// The files of stored trees that are known to have the right content. A write changes a file's
// ctime, which no program can set back; its mtime proves nothing. So a record beside each stored
// tree, .known-<digest>, has the inode, size, mtime and ctime of every file at a time when its
// content was right and nobody else could write to it. A file with other values is read again
// before it is used: links that come and go change the ctime, too. A record that is missing, torn
// or old costs only that reading.
#ifndef GPUCTL_AGENT_STORE_TREE_TRUST_H_
#define GPUCTL_AGENT_STORE_TREE_TRUST_H_

#include <sys/stat.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/tree/hash_cache.h"
#include "common/tree/manifest.h"

namespace gpuctl {

// A time longer than the step in which a local file system's times advance.
constexpr absl::Duration kFileClockTick = absl::Milliseconds(20);
// Waits until new changes get a later time than `time_ns`.
void PassClockTick(int64_t time_ns);

// The prefix of the names of records.
constexpr absl::string_view kKnownPrefix = ".known-";
std::string KnownPath(const std::string& trees, absl::string_view digest);

// Returns a file's identity without its device, whose number may be another after a reboot.
FileIdentity StoredIdentity(const struct stat& info);

// Tells for one tree, file by file, whether the record knows it. Call it in the order of paths.
class KnownFiles {
 public:
  KnownFiles(const std::string& trees, absl::string_view digest);
  bool Has(const gpuctl::v1::FileEntry& entry, const struct stat& info);

 private:
  HashCache cache_;
};

// The identity of each file of a tree, by its index in the manifest; nothing for other entries.
using StoredIdentities = std::vector<FileIdentity>;

// Returns which files of the tree open at `root_fd` are known, by index. Reads no content.
std::vector<bool> FindKnown(const std::string& trees, absl::string_view digest, int root_fd,
                            const Manifest& manifest);

// Checks that the tree open at `root_fd` is whole, and returns its files' identities. Reads the
// files that are not known, and remembers them. DATA_LOSS names the first with another content.
absl::StatusOr<StoredIdentities> VerifyStoredTree(const std::string& trees,
                                                  absl::string_view digest, int root_fd,
                                                  const Manifest& manifest);

// ABORTED when one of the `chosen` files (empty: all) is not the one of `then` any more: it may
// have been written to, or only been linked.
absl::Status CheckStillSame(int root_fd, const Manifest& manifest, const StoredIdentities& then,
                            const std::vector<bool>& chosen = {});

// Makes the files of a new tree, open at `root_fd`, as stored files are. `identities` has those of
// files that were taken from stored trees and were right; it gets the present ones of all files.
// Any other file with several links may have been written to and is read. DATA_LOSS when one was.
absl::Status MarkStored(int root_fd, const Manifest& manifest, StoredIdentities& identities);

// Writes the record. The files had the right content when they had these identities, and a write
// since then has changed them. Files whose identity is that of a file that was just changed are
// left out.
absl::Status RememberStored(const std::string& trees, absl::string_view digest,
                            const Manifest& manifest, const StoredIdentities& identities);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_STORE_TREE_TRUST_H_
