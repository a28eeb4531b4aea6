// Appends to a job's lifecycle, come what may.
#ifndef GPUCTL_AGENT_SHIM_JOURNAL_H_
#define GPUCTL_AGENT_SHIM_JOURNAL_H_

#include <deque>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/lifecycle.h"
#include "common/job/stream_file.h"

namespace gpuctl {

// Each line is on the disk before the next is written. A line that cannot be written stays in a
// queue, and Flush tries again; disk blocks for lines to come are reserved, so that `exited` fits
// on a disk that the job has filled. Not thread-safe; the caller holds the job's lock.
class Journal {
 public:
  // Opens or creates, ends a torn last line, reserves.
  static absl::StatusOr<Journal> Open(const std::string& path);

  // What the file held when it was opened.
  const Lifecycle& past() const { return past_; }
  // False when the file system has no room, or no way, to reserve.
  bool reserved() const { return reserved_ > writer_.size(); }

  // Queues `event` and flushes. An error means: queued, try Flush again.
  absl::Status Append(const LifecycleEvent& event);
  absl::Status Flush();
  bool pending() const { return !queue_.empty(); }

  // After a failed Append: whether the line can be read in the file all the same (only its way to
  // the disk is in doubt). If not, Drop forgets it.
  bool LastIsVisible() const;
  void Drop() { queue_.clear(); }

  // Gives the reserved blocks back, after the last line.
  void EndReservation();

 private:
  explicit Journal(StreamWriter writer) : writer_(std::move(writer)) {}
  void Reserve();

  StreamWriter writer_;
  Lifecycle past_;
  int64_t reserved_ = 0;  // blocks exist up to here
  std::deque<std::string> queue_;
  int64_t front_start_ = -1;  // where the first queued line begins, once that is decided
  bool rewrite_ = false;      // a sync failed: its bytes must be written again
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SHIM_JOURNAL_H_
