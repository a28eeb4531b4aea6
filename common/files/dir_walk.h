// Directories below a root, reached without following a symlink at any component, so that no tree,
// whoever prepared it, leads outside.
#ifndef GPUCTL_COMMON_FILES_DIR_WALK_H_
#define GPUCTL_COMMON_FILES_DIR_WALK_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// Keeps the chain of the directory asked for last open, so that neighbours cost one openat or none.
// Not thread-safe.
class DirWalk {
 public:
  // `root_fd` stays the caller's and must outlive the walk. Directories are made with `make_mode`.
  explicit DirWalk(int root_fd, mode_t make_mode = 0700)
      : root_fd_(root_fd), make_mode_(make_mode) {}

  // A descriptor of the directory at `path` (safe relative, or "" for the root itself), valid until
  // the next call. A symlink on the way is an error like a file there.
  absl::StatusOr<int> Open(absl::string_view path) { return Walk(path, false); }
  // The same; components that are missing are made.
  absl::StatusOr<int> OpenOrMake(absl::string_view path) { return Walk(path, true); }

 private:
  absl::StatusOr<int> Walk(absl::string_view path, bool make);
  struct Level {
    std::string name;
    UniqueFd fd;
  };
  int root_fd_;
  mode_t make_mode_;
  std::vector<Level> levels_;
};

// openat with O_CLOEXEC | O_NOFOLLOW through the file-fault hook (see file_ops in
// common/files/files.h); retries EINTR. `shown` names the file to the hook.
int OpenBelow(int dir_fd, const std::string& name, int flags, mode_t mode,
              const std::string& shown);

// renameat and unlinkat through the same hook. Where the mode of a directory of ours forbids it,
// that mode is set aside for the moment: a tree may hold directories that are not to be written to.
int RenameBelow(int from_dir, const std::string& from, int to_dir, const std::string& to,
                const std::string& shown);
int UnlinkBelow(int dir_fd, const std::string& name, int flags, const std::string& shown);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FILES_DIR_WALK_H_
