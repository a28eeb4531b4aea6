#include "common/files/dir_walk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"

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

namespace {

// Makes a directory writable for its owner while this object lives.
class Writable {
 public:
  explicit Writable(int dir_fd) : fd_(dir_fd) {
    struct stat info {};
    if (fstat(fd_, &info) != 0 || (info.st_mode & 0300) == 0300) return;
    mode_ = info.st_mode & 07777;
    changed_ = fchmod(fd_, mode_ | 0300) == 0;
  }
  ~Writable() {
    const int error_number = errno;
    if (changed_) (void)fchmod(fd_, mode_);
    errno = error_number;
  }
  Writable(const Writable&) = delete;
  Writable& operator=(const Writable&) = delete;

 private:
  const int fd_;
  mode_t mode_ = 0;
  bool changed_ = false;
};

}  // namespace

int RenameBelow(int from_dir, const std::string& from, int to_dir, const std::string& to,
                const std::string& shown) {
  if (file_ops::Fault(file_ops::Op::kRename, shown) != 0) return -1;
  if (renameat(from_dir, from.c_str(), to_dir, to.c_str()) == 0) return 0;
  if (errno != EACCES) return -1;
  // A move also writes to the moved directory, whose ".." changes.
  const UniqueFd moved(
      openat(from_dir, from.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const Writable writable_moved(moved.get());
  const Writable writable_from(from_dir);
  const Writable writable_to(to_dir);
  return renameat(from_dir, from.c_str(), to_dir, to.c_str());
}

int UnlinkBelow(int dir_fd, const std::string& name, int flags, const std::string& shown) {
  if (file_ops::Fault(file_ops::Op::kUnlink, shown) != 0) return -1;
  if (unlinkat(dir_fd, name.c_str(), flags) == 0) return 0;
  if (errno != EACCES) return -1;
  const Writable writable(dir_fd);
  return unlinkat(dir_fd, name.c_str(), flags);
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
