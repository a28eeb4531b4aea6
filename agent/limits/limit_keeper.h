// What the guard enforces by itself, with or without a laptop.
#ifndef GPUCTL_AGENT_LIMITS_LIMIT_KEEPER_H_
#define GPUCTL_AGENT_LIMITS_LIMIT_KEEPER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "agent/limits/node_limits.h"
#include "common/base/clock.h"
#include "common/job/job_layout.h"
#include "common/job/lifecycle.h"

namespace gpuctl {

// Running time of all attempts of a job together, up to now. An attempt of this boot counts by the
// boot clock (suspend included, wall-clock jumps not); one that ended before this boot by its own
// lines' wall times. `ticks_per_s` is that of start_time_ticks.
absl::Duration RunningTime(const Lifecycle& lifecycle, const std::string& boot_id,
                           absl::Duration since_boot, int64_t ticks_per_s);

// One thread. Holds nothing that is not on disk but what it has told already: a successor goes on
// where it was.
class LimitKeeper {
 public:
  // `boot_id` is this boot's, but in tests.
  LimitKeeper(const RootPaths& paths, Clock& clock, std::string boot_id);
  // Tells the shims of jobs past their time to stop ("limit:time"), and all of them when the lease
  // has no more money than their end and the salvage need ("limit:cost"). Notes how far the clocks
  // have come in clock.json, once a minute and whenever a job or a session ends. Cheap: jobs that
  // are over are not looked at again.
  void Enforce();
  // The reason for which the node is to be released now, as of the last Enforce; "" when it is not.
  const std::string& release_due() const { return release_due_; }

 private:
  void EnforceTime(const std::string& job_id);
  void EnforceLease();
  void StopJobs(const std::vector<std::string>& job_ids, const std::string& reason);
  bool AllHome(const gpuctl::v1::NodeLimits& limits, const JobCensus& census);
  void NoteClock(const ClockNote& note);

  const RootPaths& paths_;
  Clock& clock_;
  const std::string boot_id_;
  absl::Duration next_look_ = -absl::InfiniteDuration();
  absl::Duration next_note_ = -absl::InfiniteDuration();
  absl::Duration next_home_look_ = -absl::InfiniteDuration();
  bool all_home_ = false;
  std::string home_state_;  // what all_home_ was found under
  std::optional<ClockNote> note_;
  bool noted_live_ = false;  // what the note on disk was written under
  bool noted_contact_ = false;
  std::string release_due_;
  std::set<std::string> done_;       // over, or without a limit
  std::map<std::string, int> told_;  // attempt that was told to stop
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_LIMITS_LIMIT_KEEPER_H_
