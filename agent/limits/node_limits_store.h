// The limits of a lease as the node keeps them, and the facts that they are judged by, looked up on
// disk, so that any process of the node comes to the same result.
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

// limits.json. NOT_FOUND where there are none, DATA_LOSS when the file is not of that kind.
absl::StatusOr<StoredLimits> ReadNodeLimits(const RootPaths& paths);
// Stores `limits` unless newer ones are there, and claims the node. INVALID_ARGUMENT for what makes
// no sense.
absl::Status StoreNodeLimits(const RootPaths& paths, const gpuctl::v1::NodeLimits& limits,
                             const TimeStamp& now);

// home.json: what has been brought home, by job id.
std::map<std::string, gpuctl::v1::JobHome> ReadHome(const RootPaths& paths);
// Adds to it; nothing is taken back. One writer at a time.
absl::Status MarkHome(const RootPaths& paths, const gpuctl::v1::MarkHomeRequest& request);
// Whether all that the jobs `job_ids` left is at home.
bool ResultsHome(const RootPaths& paths, const gpuctl::v1::NodeLimits& limits,
                 const std::vector<std::string>& job_ids);

// clock.json; nothing where there is none yet.
std::optional<ClockNote> ReadClockNote(const RootPaths& paths);
absl::Status WriteClockNote(const RootPaths& paths, const ClockNote& note);

// The jobs whose directories are there.
JobCensus TakeCensus(const RootPaths& paths);

// What the start script noted; nothing where none of ours ran.
std::optional<gpuctl::v1::BootNote> ReadBootNote(const RootPaths& paths);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_LIMITS_NODE_LIMITS_STORE_H_
