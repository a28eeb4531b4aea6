// Roots of allocations that were killed at once, with their holders: nobody was left to remove
// them, and a node's /tmp may be there for months.
#ifndef GPUCTL_AGENT_HOLD_DEAD_ROOTS_H_
#define GPUCTL_AGENT_HOLD_DEAD_ROOTS_H_

#include <map>
#include <string>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// Finds dead roots beside the one of this allocation. Used by one thread.
class DeadRoots {
 public:
  // Processes of a job live 20 seconds longer than their allocation, at most.
  static constexpr absl::Duration kDeadFor = absl::Seconds(30);

  DeadRoots(const RootPaths& own, Clock& clock);
  // Looks, at most every few seconds. Returns a root whose batch script is gone for kDeadFor; ""
  // when there is none. It returns each root once.
  std::string Next();

 private:
  const std::string parent_;
  const std::string own_;
  Clock& clock_;
  absl::Duration next_look_ = -absl::InfiniteDuration();
  std::map<std::string, absl::Duration> dead_since_;  // by name; infinite: was returned
};

// Starts a process that removes a root, and the file that names it. Returns false when it cannot be
// started.
bool StartRemoval(const std::string& root);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_HOLD_DEAD_ROOTS_H_
