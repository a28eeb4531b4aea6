#include "common/dir_walk.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files.h"
#include "common/manifest.h"
#include "common/status_macros.h"

namespace gpuctl {

int OpenBelow(int dir_fd, const std::string& name, int flags, mode_t mode,
              const std::string& shown) {
  const bool changes = (flags & (O_CREAT | O_WRONLY | O_RDWR)) != 0;
  if (changes && file_ops::Fault(file_ops::Op::kOpen, shown) != 0) return -1;
  int fd;
  do {
    fd = openat(dir_fd, name.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

absl::StatusOr<int> DirWalk::Walk(absl::string_view path, bool make) {
  if (path.empty()) return root_fd_;
  if (!IsSafeRelativePath(path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("open directory ", absl::CHexEscape(path), ": unsafe path"));
  }
  const std::vector<std::string> names = absl::StrSplit(path, '/');
  size_t common = 0;
  while (common < levels_.size() && common < names.size() &&
         levels_[common].name == names[common]) {
    ++common;
  }
  levels_.resize(common);
  for (size_t i = common; i < names.size(); ++i) {
    const int parent = levels_.empty() ? root_fd_ : levels_.back().fd.get();
    const std::string shown(path);
    if (make) {
      if (file_ops::Fault(file_ops::Op::kMkdir, shown) != 0 ||
          (mkdirat(parent, names[i].c_str(), make_mode_) != 0 && errno != EEXIST)) {
        return ErrnoStatus(errno, absl::StrCat("make directory ", absl::CHexEscape(path)));
      }
    }
    UniqueFd fd(OpenBelow(parent, names[i], O_RDONLY | O_DIRECTORY, 0, shown));
    if (!fd.valid()) {
      return ErrnoStatus(errno, absl::StrCat("open directory ", absl::CHexEscape(path)));
    }
    levels_.push_back({names[i], std::move(fd)});
  }
  return levels_.back().fd.get();
}

}  // namespace gpuctl
