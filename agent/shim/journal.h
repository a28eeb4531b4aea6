// Appending to a job's lifecycle, also on full or broken disks.
#ifndef GPUCTL_AGENT_SHIM_JOURNAL_H_
#define GPUCTL_AGENT_SHIM_JOURNAL_H_

#include <deque>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/lifecycle.h"
#include "common/job/stream_file.h"

namespace gpuctl {

// Writes lifecycle lines, and syncs each before the next write. A line that cannot be written stays
// in a queue, and Flush tries again. It reserves disk blocks for later lines, so that `exited` fits
// on a disk that the job has filled. Not thread-safe; the caller holds the job's lock.
class Journal {
 public:
  // Opens or creates the file, ends a torn last line and reserves blocks.
  static absl::StatusOr<Journal> Open(const std::string& path);

  // Returns the lifecycle in the file at its opening.
  const Lifecycle& past() const { return past_; }
  // False when the file system has no room to reserve, or cannot reserve.
  bool reserved() const { return reserved_ > writer_.size(); }

  // Queues `event` and flushes. After an error the line is queued: call Flush again.
  absl::Status Append(const LifecycleEvent& event);
  // Does the same with two events in one write: a reader finds both or none.
  absl::Status AppendTogether(const LifecycleEvent& event, const LifecycleEvent& next);
  absl::Status Flush();
  bool pending() const { return !queue_.empty(); }

  // True when the line of a failed Append is readable in the file, though perhaps not on the disk.
  // If not, Drop forgets it.
  bool LastIsVisible() const;
  void Drop() { queue_.clear(); }

  // Frees the reserved blocks. Call it after the last line.
  void EndReservation();

 private:
  explicit Journal(StreamWriter writer) : writer_(std::move(writer)) {}
  void Reserve();

  StreamWriter writer_;
  Lifecycle past_;
  int64_t reserved_ = 0;  // blocks exist up to here
  std::deque<std::string> queue_;
  int64_t front_start_ = -1;  // the offset of the first queued line, when it is decided
  bool rewrite_ = false;      // a sync failed: its bytes must be written again
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SHIM_JOURNAL_H_
