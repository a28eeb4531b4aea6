#include "common/transfer/pull_times.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

#include "absl/time/time.h"
#include "common/files/dir_walk.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"

namespace gpuctl {

std::vector<int64_t> TakeTimes(Manifest& manifest) {
  std::vector<int64_t> times;
  Manifest timeless;
  timeless.Reserve(static_cast<int64_t>(manifest.bytes().size()));
  for (gpuctl::v1::FileEntry entry : manifest) {
    times.push_back(entry.modified_ns());
    entry.clear_modified_ns();
    timeless.Append(entry);
  }
  manifest = std::move(timeless);
  return times;
}

void SetTimes(const TreeBuilder& tree, const std::vector<int64_t>& times) {
  DirWalk walk(tree.root_fd());
  for (int64_t i = 0; i < tree.manifest().size(); ++i) {
    const int64_t time_ns = times[static_cast<size_t>(i)];
    if (time_ns <= 0 || !tree.Wants(i)) continue;
    const std::string path = tree.manifest()[i].path();
    const absl::StatusOr<int> dir = walk.Open(ParentPath(path));
    const struct timespec both[2] = {{0, UTIME_OMIT},
                                     absl::ToTimespec(absl::FromUnixNanos(time_ns))};
    if (dir.ok()) (void)utimensat(*dir, BaseName(path).c_str(), both, AT_SYMLINK_NOFOLLOW);
  }
}

}  // namespace gpuctl
