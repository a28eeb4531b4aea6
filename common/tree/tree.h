// Trees on disk: scanned into a manifest, and copied by one.
#ifndef GPUCTL_COMMON_TREE_TREE_H_
#define GPUCTL_COMMON_TREE_TREE_H_

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tree/hash_cache.h"
#include "common/tree/manifest.h"

namespace gpuctl {

// True for a relative path to leave out (a directory with all below it); `info` is lstat's.
using SkipPath = std::function<bool(const std::string& path, const struct stat& info)>;

struct ScanOptions {
  SkipPath skip;                                // empty: nothing is left out
  std::vector<std::string>* skipped = nullptr;  // gets the names of sockets, devices and the like
  HashCache* cache = nullptr;                   // known hashes; the caller saves it afterwards
  // Called with the content bytes read so far; unchanged files in the cache are not read.
  std::function<void(int64_t bytes)> progress;
};

// Builds the manifest of the tree at `root`: regular files (hashed, on several threads where there
// is enough to do), directories, symlinks. Anything else is left out. A file that changes while it
// is read is read once more; if it changes again, ABORTED names it. What disappears during the scan
// is left out.
absl::StatusOr<Manifest> ScanTree(const std::string& root, const ScanOptions& options = {});
// The same below an open directory; `shown` names it in errors.
absl::StatusOr<Manifest> ScanTreeAt(int root_fd, const std::string& shown,
                                    const ScanOptions& options = {});
// The manifest of the one regular file `name` in the directory `dir_fd`; symlinks are not followed.
absl::StatusOr<Manifest> ScanFileAt(int dir_fd, const std::string& name,
                                    const ScanOptions& options = {});

// The manifest of those of `paths`, sorted by PathLess and unique, that are regular files or
// symlinks below an open directory; no directory is in it.
absl::StatusOr<Manifest> ScanFilesAt(int root_fd, const std::string& shown,
                                     const std::vector<std::string>& paths,
                                     const ScanOptions& options = {});

// Copies the verified tree at `from` to the new directory `to` (reflink where the file system can,
// else copy; modes kept, never a link). ALREADY_EXISTS when `to` is there; DATA_LOSS when a file at
// `from` no longer has its entry's size. On error nothing is left at `to`. Not synced.
absl::Status CopyTree(const std::string& from, const std::string& to, const Manifest& manifest);

// Of these three, `wanted` tells which entries of the manifest are meant; all when it is empty.
// Makes what `manifest` has beside files' content: directories before anything else, and, in the
// end, symlinks and the directories' modes (which may forbid writing).
absl::Status MakeTreeDirectories(int root_fd, const Manifest& manifest,
                                 const std::vector<bool>& wanted = {});
absl::Status FinishTree(int root_fd, const Manifest& manifest,
                        const std::vector<bool>& wanted = {});
// Brings what is below `root` to stable storage.
absl::Status SyncTree(const std::string& root, const Manifest& manifest,
                      const std::vector<bool>& wanted = {});

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TREE_TREE_H_
