// Trees on disk: scans into a manifest, and copies according to one.
#ifndef GPUCTL_COMMON_TREE_TREE_H_
#define GPUCTL_COMMON_TREE_TREE_H_

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/files/dir_walk.h"
#include "common/tree/hash_cache.h"
#include "common/tree/manifest.h"

namespace gpuctl {

// A function that returns true for a relative path to leave out (a directory with all below it).
// `info` comes from lstat.
using SkipPath = std::function<bool(const std::string& path, const struct stat& info)>;

// Files of a scan that the manifest does not have as they are, by path.
struct ScanNotes {
  // Somebody appended to these while they were read. The manifest has what was there at first.
  std::vector<std::string> grown;
  std::vector<std::string> changed;  // changed in another way; not in the manifest
  std::vector<std::string> set_id;   // have setuid or setgid, which manifests do not have
};

struct ScanOptions {
  SkipPath skip;                                // empty: nothing is left out
  std::vector<std::string>* skipped = nullptr;  // receives the names of sockets, devices and so on
  HashCache* cache = nullptr;                   // known hashes; the caller saves it afterwards
  // Receives files that are not taken as they are. Null: a file that grows is an error as others.
  ScanNotes* notes = nullptr;
  bool leave_changed = false;  // with notes: a file that changes is left out, not an error
  bool times = false;          // entries of files get modified_ns
  // Called with the content bytes read so far. Unchanged files in the cache are not read.
  std::function<void(int64_t bytes)> progress;
};

// Builds the manifest of the tree at `root`: regular files, directories and symlinks. Leaves out
// anything else. Hashes on several threads when there is enough to do. A file that changes while it
// is read is read once more; if it changes again, ABORTED names it. With `notes`, what was there at
// first is taken of a file that only grows. Files that disappear during the scan are left out.
absl::StatusOr<Manifest> ScanTree(const std::string& root, const ScanOptions& options = {});
// Builds the manifest of the tree below an open directory. `shown` names it in errors.
absl::StatusOr<Manifest> ScanTreeAt(int root_fd, const std::string& shown,
                                    const ScanOptions& options = {});
// Builds the manifest of the one regular file `name` in the directory `dir_fd`. Does not follow
// symlinks.
absl::StatusOr<Manifest> ScanFileAt(int dir_fd, const std::string& name,
                                    const ScanOptions& options = {});

// Builds the manifest of those `paths` below an open directory that are regular files or symlinks.
// It has no directories. `paths` are unique and sorted by PathLess.
absl::StatusOr<Manifest> ScanFilesAt(int root_fd, const std::string& shown,
                                     const std::vector<std::string>& paths,
                                     const ScanOptions& options = {});

// Copies the verified tree at `from` to the new directory `to`, with its modes: by reflink where
// the file system can, else by copying, never by hard links. ALREADY_EXISTS when `to` exists;
// DATA_LOSS when a file at `from` no longer has its entry's size. On error nothing is left at `to`.
// Does not sync.
absl::Status CopyTree(const std::string& from, const std::string& to, const Manifest& manifest);

// Copies one file as CopyTree does, from below an open directory to below another one.
absl::Status CopyTreeFile(DirWalk& from, DirWalk& to, const gpuctl::v1::FileEntry& entry);

// `wanted` selects entries of the manifest in the three functions below; empty selects all. Make
// the entries of `manifest` other than files. MakeTreeDirectories makes the directories, before
// anything else. FinishTree makes the symlinks and sets the directories' modes, which may forbid
// writing, at the end.
absl::Status MakeTreeDirectories(int root_fd, const Manifest& manifest,
                                 const std::vector<bool>& wanted = {});
absl::Status FinishTree(int root_fd, const Manifest& manifest,
                        const std::vector<bool>& wanted = {});
// Syncs everything below `root`.
absl::Status SyncTree(const std::string& root, const Manifest& manifest,
                      const std::vector<bool>& wanted = {});

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TREE_TREE_H_
