// What the guard enforces by itself, with or without a laptop.
#ifndef GPUCTL_AGENT_LIMITS_H_
#define GPUCTL_AGENT_LIMITS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/job_layout.h"
#include "common/lifecycle.h"

namespace gpuctl {

// Running time of all attempts of a job together, up to now. An attempt of this boot counts by the
// boot clock (suspend included, wall-clock jumps not); one that ended before this boot by its own
// lines' wall times. `ticks_per_s` is that of start_time_ticks.
absl::Duration RunningTime(const Lifecycle& lifecycle, const std::string& boot_id,
                           absl::Duration since_boot, int64_t ticks_per_s);

// One thread.
class LimitKeeper {
 public:
  LimitKeeper(const RootPaths& paths, Clock& clock);
  // Tells the shims of jobs past their time to stop ("limit:time"), and notes (boot id, boot time,
  // wall time) in clock.json once a minute. Cheap: jobs that are over are not looked at again.
  void Enforce();

 private:
  void EnforceTime(const std::string& job_id);
  void NoteClock();

  const RootPaths& paths_;
  Clock& clock_;
  const std::string boot_id_;
  absl::Duration next_look_ = -absl::InfiniteDuration();
  absl::Duration next_note_ = -absl::InfiniteDuration();
  std::set<std::string> done_;       // over, or without a limit
  std::map<std::string, int> told_;  // attempt that was told to stop
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_LIMITS_H_
