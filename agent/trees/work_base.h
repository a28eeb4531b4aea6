// What was pushed into a job's work directory last, the base of the next three-way merge, and what
// a merge that is going on intends. In the job's directory:
//   work.manifest  the base; while a merge changes the work directory it is called work.base
//   work.intent    what the merge makes of the paths it touches: for each the entry it becomes, or
//                  an entry without a kind where it is removed
// A merge that died in the middle is told by the base's other name. Then a path that looks as
// intended came from the laptop, like one that looks as in the base; only another is the job's.
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

// Where the base is kept; not there while a merge changes the work directory.
std::string WorkManifestPath(const JobPaths& job);
// Held by whoever changes the work directory for a laptop.
std::string SyncLockPath(const JobPaths& job);

using PathTest = std::function<bool(const std::string& path)>;

// For the holder of the job's sync.lock.
class WorkBase {
 public:
  explicit WorkBase(const JobPaths& job);

  // After a merge that died: makes the base what of the two is found below `live_fd`, the work
  // directory. Reads the files that merge touched. Does nothing otherwise.
  absl::Status Settle(int live_fd) const;
  // Empty when nothing was pushed. After Settle.
  absl::StatusOr<Manifest> Read() const;

  // Durably notes that the work directory is going to become `theirs`, but for what `kept` names,
  // where `base` was. Nothing of it may be touched before.
  absl::Status Begin(const Manifest& base, const Manifest& theirs, const PathTest& kept) const;
  // The work directory has become that, durably. Of paths that `kept` names the base stays as it
  // is.
  absl::Status End(const Manifest& theirs, const PathTest& kept) const;
  // As above where nothing was kept, neither by Begin.
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
