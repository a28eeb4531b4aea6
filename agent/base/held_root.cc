#include "agent/base/held_root.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/release/release_route.h"

namespace gpuctl {

bool IsHeldRoot(const RootPaths& paths) { return PathExists(JoinPath(paths.root, kHeldFile)); }

bool LivesBatchScript(const RootPaths& paths) {
  // Without a reader a non-blocking open for writing fails.
  const UniqueFd sign(file_ops::Open(JoinPath(paths.root, kHeldSignFile), O_WRONLY | O_NONBLOCK));
  return sign.valid() || (errno != ENXIO && errno != ENOENT && errno != ENOTDIR);
}

HolderWatch::HolderWatch(const RootPaths& paths, Clock& clock)
    : paths_(paths), clock_(clock), held_(IsHeldRoot(paths)) {}

bool HolderWatch::IsHolderGone() {
  // What cannot be told is no reason to end a job.
  if (!held_ || IsLocked(paths_.guard_lock).value_or(true)) {
    missing_since_ = absl::InfiniteDuration();
    return false;
  }
  const absl::Duration now = clock_.SinceBoot();
  missing_since_ = std::min(missing_since_, now);
  return now - missing_since_ >= kRestartWithin || !LivesBatchScript(paths_);
}

}  // namespace gpuctl
