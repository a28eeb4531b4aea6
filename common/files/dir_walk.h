// Access to directories below a root that never follows a symlink, so that not even a hostile tree
// leads outside.
#ifndef GPUCTL_COMMON_FILES_DIR_WALK_H_
#define GPUCTL_COMMON_FILES_DIR_WALK_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// Opens directories below a root. It keeps the directories of the last path open, so that a
// neighbour costs one openat or none. Not thread-safe.
class DirWalk {
 public:
  // `root_fd` stays the caller's and must outlive the walk. New directories get `make_mode`.
  explicit DirWalk(int root_fd, mode_t make_mode = 0700)
      : root_fd_(root_fd), make_mode_(make_mode) {}

  // Returns a descriptor of the directory at `path` (safe relative, or "" for the root), valid
  // until the next call. A symlink in the path is an error, as a file is.
  absl::StatusOr<int> Open(absl::string_view path) { return Walk(path, false); }
  // Opens the same way and makes missing components.
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

// Calls openat with O_CLOEXEC | O_NOFOLLOW, through the file-fault hook (see file_ops in
// common/files/files.h), and retries EINTR. `shown` names the file to the hook.
int OpenBelow(int dir_fd, const std::string& name, int flags, mode_t mode,
              const std::string& shown);

// Call renameat and unlinkat through the same hook. A tree may hold read-only directories: when the
// mode of a directory of ours forbids the call, the mode is changed for that moment.
int RenameBelow(int from_dir, const std::string& from, int to_dir, const std::string& to,
                const std::string& shown);
int UnlinkBelow(int dir_fd, const std::string& name, int flags, const std::string& shown);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FILES_DIR_WALK_H_
