// The end of all jobs of a node, because its Slurm allocation ends.
#ifndef GPUCTL_AGENT_HOLD_JOBS_END_H_
#define GPUCTL_AGENT_HOLD_JOBS_END_H_

#include <map>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// Returns the grace of $GPUCTL_HOLD_GRACE_S; 30 seconds when that is no number of seconds.
absl::Duration HoldGrace();

// Stops the jobs, and kills what is left after the grace. Jobs of which GoesOnAfterwards is true
// wait then for the allocation's next start. Used by one thread. Everything is read
// from disk, so it also ends jobs that an earlier holder had.
class JobsEnd {
 public:
  // The grace begins now. A job whose own grace is shorter has that one.
  JobsEnd(const RootPaths& paths, absl::Duration grace, Clock& clock);
  // Makes the grace end no later than `left` from now.
  void Hurry(absl::Duration left);
  // Goes on, and never waits. True when no job runs or waits any more, and in any case a few
  // seconds after the grace. Call it several times a second: a job may have been accepted
  // meanwhile.
  bool Proceed();
  // Kills the descendants of this process, and all processes of the jobs that were there. Returns
  // when they are gone, at the latest after `patience`.
  void KillRest(absl::Duration patience);

 private:
  // Returns true when the job is over.
  bool Tell(const std::string& job_id);

  const RootPaths paths_;
  Clock& clock_;
  absl::Duration grace_end_;         // since boot
  std::map<std::string, int> told_;  // the attempt that was told to stop
  std::set<std::string> seen_;       // the jobs that were not over
  bool last_words_ = false;          // the grace is over, and "stop now" was sent
};

// For the server of a root whose holder is gone: waits for the shims, which end their jobs, and
// kills what is left of jobs without one. Takes 15 seconds at most.
void SweepWithoutHolder(const RootPaths& paths, Clock& clock);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_HOLD_JOBS_END_H_
