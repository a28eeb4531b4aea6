// The limits of a lease on the node's disk, and the facts for decisions about them. All are read
// from disk, so that any process of the node comes to the same result.
#ifndef GPUCTL_AGENT_LIMITS_NODE_LIMITS_STORE_H_
#define GPUCTL_AGENT_LIMITS_NODE_LIMITS_STORE_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/base/time_stamp.h"
#include "agent/limits/node_limits.h"
#include "common/job/job_layout.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// Reads limits.json. NOT_FOUND where there is none, DATA_LOSS when it is not such a file.
absl::StatusOr<StoredLimits> ReadNodeLimits(const RootPaths& paths);
// Stores `limits` unless newer ones are stored, and claims the node. INVALID_ARGUMENT for
// impossible limits.
absl::Status StoreNodeLimits(const RootPaths& paths, const gpuctl::v1::NodeLimits& limits,
                             const TimeStamp& now);

// Reads home.json: the results brought home, by job id.
std::map<std::string, gpuctl::v1::JobHome> ReadHome(const RootPaths& paths);
// Adds to home.json and never removes. One writer at a time.
absl::Status MarkHome(const RootPaths& paths, const gpuctl::v1::MarkHomeRequest& request);
// True when all results of the jobs `job_ids`, which are over, are at home. Where the limits call
// only checkpoints results, a job's output and end count as home when somebody was here after it.
bool ResultsHome(const RootPaths& paths, const gpuctl::v1::NodeLimits& limits,
                 const std::vector<std::string>& job_ids);

// Reads clock.json; nothing where there is none yet.
std::optional<ClockNote> ReadClockNote(const RootPaths& paths);
absl::Status WriteClockNote(const RootPaths& paths, const ClockNote& note);

// Returns the jobs that have directories.
JobCensus TakeCensus(const RootPaths& paths);

// Reads the start script's note; nothing where our start script did not run.
std::optional<gpuctl::v1::BootNote> ReadBootNote(const RootPaths& paths);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_LIMITS_NODE_LIMITS_STORE_H_
