#include "agent/base/held_root.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/release/release_route.h"

namespace gpuctl {
namespace {

constexpr int64_t kMostNoted = 1 << 20;

// The ids of the jobs, one a line.
std::string GoesOnPath(const RootPaths& paths) { return JoinPath(paths.root, "goes_on"); }

}  // namespace

bool IsHeldRoot(const RootPaths& paths) { return PathExists(JoinPath(paths.root, kHeldFile)); }

bool GoesOnAfterwards(const RootPaths& paths, absl::string_view job_id) {
  const absl::StatusOr<std::string> noted = ReadFileToString(GoesOnPath(paths), kMostNoted);
  if (!noted.ok()) return false;
  for (const absl::string_view line : absl::StrSplit(*noted, '\n')) {
    if (!line.empty() && line == job_id) return true;
  }
  return false;
}

absl::Status NoteWhoGoesOn(const RootPaths& paths, const std::set<std::string>& job_ids) {
  return WriteFileAtomic(GoesOnPath(paths), absl::StrCat(absl::StrJoin(job_ids, "\n"), "\n"));
}

bool IsWhoGoesOnNoted(const RootPaths& paths) { return PathExists(GoesOnPath(paths)); }

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
