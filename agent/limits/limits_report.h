// The node's reports about its limits.
#ifndef GPUCTL_AGENT_LIMITS_LIMITS_REPORT_H_
#define GPUCTL_AGENT_LIMITS_LIMITS_REPORT_H_

#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/job/job_layout.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// Returns the limits' state for Hello; nothing where no limits were set.
std::optional<gpuctl::v1::NodeLimitsState> DescribeNodeLimits(const RootPaths& paths,
                                                              const std::string& boot_id,
                                                              Clock& clock);

// `gpuctl-agent limits`: prints one line of JSON with what the limits require if nobody comes. A
// laptop uses it to end nodes that cannot end themselves. The question is not a contact. The line
// is {job_runs, results_home, due: "limit:idle" or null, next: the limit that releases it next or
// null, in_s, can_release, cannot_release_why, release_requests, lease_id, the prices that the node
// knows, sent_bytes, received_bytes}. Exits with 3 where no limits were set.
int RunLimits(const std::string& root);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_LIMITS_LIMITS_REPORT_H_
