// The limits of a lease, and the actions that they require. Pure functions; node_limits_store.h
// looks up the facts.
#ifndef GPUCTL_AGENT_LIMITS_NODE_LIMITS_H_
#define GPUCTL_AGENT_LIMITS_NODE_LIMITS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "agent/base/time_stamp.h"
#include "agent/telemetry/host_probe.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// The facts for a decision.
struct NodeFacts {
  absl::Duration billed;      // since the limits were accepted, off or suspended time included
  absl::Duration no_job;      // since a job last ran
  absl::Duration no_contact;  // since somebody was last here; zero while somebody is
  bool job_runs = false;      // or will run without a laptop
  bool results_home = true;
  double traffic_usd = 0;  // of the traffic since the limits were made (TrafficUsd)
};

struct NodeAction {
  enum class Kind { kNone, kStopJobs, kRelease };
  Kind kind = Kind::kNone;
  std::string reason;  // "limit:cost", "limit:idle", "limit:salvage", "limit:lease"
  // The time until it is due if nothing changes; zero or less: now.
  absl::Duration in = absl::InfiniteDuration();
};

// Returns the first action that the limits require. kRelease also where the node cannot release
// itself.
NodeAction NextAction(const gpuctl::v1::NodeLimits& limits, const NodeFacts& facts);

// Returns the lease's cost after `billed` and this traffic under these limits, in dollars.
double SpentUsd(const gpuctl::v1::NodeLimits& limits, absl::Duration billed, double traffic_usd);

// The content of limits.json.
struct StoredLimits {
  gpuctl::v1::NodeLimits limits;
  TimeStamp accepted;
};

// The content of clock.json: the durations of NodeFacts at a moment.
struct ClockNote {
  TimeStamp at;
  int64_t revision = 0;  // of the limits that `billed` counts from; 0: without limits
  absl::Duration billed;
  absl::Duration no_job;
  absl::Duration no_contact;
  int64_t jobs_over = 0;
  // The machine's traffic since the agent first ran there, and the kernel's counters at the time of
  // the note; absent before they were first read.
  NetworkCounters traffic;
  std::optional<NetworkCounters> counters;
};

// The jobs of a node that matter for limits.
struct JobCensus {
  std::vector<std::string> live;          // running, or will run without a laptop
  std::vector<std::string> with_results;  // not live, and started once
};

// Returns `note` advanced to `now`.
ClockNote Advance(const std::optional<ClockNote>& note, const StoredLimits& stored,
                  const JobCensus& census, bool in_contact,
                  const std::optional<TimeStamp>& last_contact, const TimeStamp& now);

// Sets the traffic of `next`: what `note` had, and what the counters have counted since then.
// Counters begin at 0 when a machine or container starts. The first reading of all counts nothing.
void CountTraffic(const std::optional<ClockNote>& note,
                  const std::optional<NetworkCounters>& counters, ClockNote& next);

// Returns the price of the traffic of `note` that is not in the limits' spent_before_usd, in
// dollars.
double TrafficUsd(const gpuctl::v1::NodeLimits& limits, const ClockNote& note);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_LIMITS_NODE_LIMITS_H_
