// The root of a Slurm allocation: its batch script holds it, and nobody else starts a guard there.
#ifndef GPUCTL_AGENT_BASE_HELD_ROOT_H_
#define GPUCTL_AGENT_BASE_HELD_ROOT_H_

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// True when the root has the marker kHeldFile of common/release.
bool IsHeldRoot(const RootPaths& paths);

// True for a job that goes on when Slurm starts its allocation again: what it needs for that lies
// on the cluster's shared file system, and Slurm was told to start the allocation again. False in
// other roots.
bool GoesOnAfterwards(const RootPaths& paths, absl::string_view job_id);
// Notes the jobs of which GoesOnAfterwards is true.
absl::Status NoteWhoGoesOn(const RootPaths& paths, const std::set<std::string>& job_ids);
// True when that was called for this root.
bool IsWhoGoesOnNoted(const RootPaths& paths);

// True while the batch script has its FIFO open (kHeldSignFile). Also true when that cannot be
// told, because there are no descriptors left.
bool LivesBatchScript(const RootPaths& paths);

// Tells when nobody holds the root any more, so that everything in it must end. The processes of a
// job ask it, because some clusters do not end what a batch script has left. Not thread-safe.
class HolderWatch {
 public:
  // The batch script starts its holder again after a second. A job is not ended for that.
  static constexpr absl::Duration kRestartWithin = absl::Seconds(10);

  // Finds out whether the root is held. It stays so when its files are removed later.
  HolderWatch(const RootPaths& paths, Clock& clock);
  bool held() const { return held_; }
  // Looks now. True when the root is held and its holder is gone: at once when the batch script is
  // gone, too, else after kRestartWithin. Call it every few seconds.
  bool IsHolderGone();

 private:
  const RootPaths paths_;
  Clock& clock_;
  const bool held_;
  absl::Duration missing_since_ = absl::InfiniteDuration();  // since boot
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_HELD_ROOT_H_
