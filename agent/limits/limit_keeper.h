// The limits that the guard enforces by itself, with or without a laptop.
#ifndef GPUCTL_AGENT_LIMITS_LIMIT_KEEPER_H_
#define GPUCTL_AGENT_LIMITS_LIMIT_KEEPER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "agent/limits/job_alerts.h"
#include "agent/limits/node_limits.h"
#include "common/base/clock.h"
#include "common/job/job_layout.h"
#include "common/job/lifecycle.h"

namespace gpuctl {

// Returns the running time of all attempts of a job together, up to now. An attempt of this boot
// counts by the boot clock (suspend included, wall-clock jumps not). One that ended before this
// boot counts by the wall times of its own lines. `ticks_per_s` is the unit of start_time_ticks.
absl::Duration RunningTime(const Lifecycle& lifecycle, const std::string& boot_id,
                           absl::Duration since_boot, int64_t ticks_per_s);

// Enforces the limits. Used by one thread. Only the list of stops already sent is not on disk, so a
// successor goes on where it was.
class LimitKeeper {
 public:
  // `boot_id` is this boot's, except in tests.
  LimitKeeper(const RootPaths& paths, Clock& clock, std::string boot_id);
  // Stops jobs that are past their time ("limit:time"), and all jobs when the lease has only enough
  // money left for their end and the salvage ("limit:cost"), and jobs that fulfil a condition of
  // their own ("alert:…"). Writes the clocks' progress to
  // clock.json, once a minute and whenever a job or a session ends. Cheap, because it does not look
  // again at jobs that are over.
  void Enforce();
  // Returns the reason to release the node now, as of the last Enforce; "" when there is none.
  const std::string& release_due() const { return release_due_; }

 private:
  void EnforceTime(const std::string& job_id);
  // Stops a job that fulfils one of its own conditions ("alert:loss is nan at step 120").
  void EnforceAlerts(const std::string& job_id);
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
  std::string home_state_;  // the state for which all_home_ was found
  std::optional<ClockNote> note_;
  bool noted_live_ = false;  // the value in the note on disk
  bool noted_contact_ = false;
  std::string release_due_;
  std::set<std::string> done_;       // over, or without a limit
  std::set<std::string> no_alerts_;  // over, or without
  std::map<std::string, JobAlerts> alerts_;
  std::map<std::string, int> told_;  // the attempt that was told to stop
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_LIMITS_LIMIT_KEEPER_H_
