// When the agent of a machine that bills nobody ends by itself: the next command starts it again.
#ifndef GPUCTL_AGENT_IDLE_END_H_
#define GPUCTL_AGENT_IDLE_END_H_

#include <cstdint>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// Decides whether a guard may end because nobody needs it. One thread uses it.
class IdleEnd {
 public:
  // `after`: for how long nobody must have been in contact with the node. Both outlive it.
  IdleEnd(const RootPaths& paths, absl::Duration after, Clock& clock);

  // True once nobody was here for that time, no job lives or waits, and the node has no limits: a
  // rented machine's agent has to end the bill. Cheap: it looks once in a while.
  bool IsDue();

 private:
  bool HasOpenJob() const;

  const RootPaths& paths_;
  Clock& clock_;
  const absl::Duration after_, look_every_;
  absl::Duration used_at_, look_at_ = -absl::InfiniteDuration();
  int64_t seen_ = 0;  // ContactMark at the last look
};

// Returns the time of a guard: an hour, or $GPUCTL_IDLE_END in seconds, for tests.
absl::Duration IdleEndAfter();

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_IDLE_END_H_
