// The last push into a job's work directory, which is the base of the next three-way merge, and the
// intent of a running merge. In the job's directory:
//   work.manifest  the base; while a merge changes the work directory its name is work.base
//   work.intent    the merge's results for the paths it touches: for each the entry it becomes, or
//                  an entry without a kind where it is removed
// The name work.base shows that a merge died in the middle. Then a path that matches the intent or
// the base came from the laptop; any other is the job's.
#ifndef GPUCTL_AGENT_TREES_WORK_BASE_H_
#define GPUCTL_AGENT_TREES_WORK_BASE_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/job_layout.h"
#include "common/tree/manifest.h"
#include "common/tree/manifest_file.h"

namespace gpuctl {

// Returns the path of the base. The file is missing while a merge changes the work directory.
std::string WorkManifestPath(const JobPaths& job);
// Returns the path of the lock that a process holds while it changes the work directory for a
// laptop.
std::string SyncLockPath(const JobPaths& job);

using PathTest = std::function<bool(const std::string& path)>;

// The base and intent of a job. Only for the holder of the job's sync.lock.
class WorkBase {
 public:
  explicit WorkBase(const JobPaths& job);

  // Repairs the base after a merge that died: for each touched path it takes the one of base and
  // intent that is found below `live_fd`, the work directory. Reads the files that the merge
  // touched. Does nothing when no merge died.
  absl::Status Settle(int live_fd) const;
  // Reads the base; empty when nothing was pushed. Call Settle first.
  absl::StatusOr<Manifest> Read() const;

  // Durably records that the work directory will change from `base` to `theirs`, except the paths
  // that `kept` names. Call it before any change.
  absl::Status Begin(const Manifest& base, const Manifest& theirs, const PathTest& kept) const;
  // Records that the work directory has durably become `theirs`. For paths that `kept` names the
  // base stays as it is.
  absl::Status End(const Manifest& theirs, const PathTest& kept) const;
  // Does the same when nothing was kept, also not by Begin.
  absl::Status End(const Manifest& theirs) const;

 private:
  absl::StatusOr<ManifestReader> OpenBase() const;
  absl::Status Merge(ManifestReader& base, ManifestReader& intent, int live_fd) const;
  absl::Status Publish(ManifestWriter& next) const;
  absl::Status Forget() const;

  const std::string dir_;
  const std::string manifest_;
  const std::string moved_;
  const std::string intent_;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_TREES_WORK_BASE_H_
