// What the node says about its limits, to whoever asks.
#ifndef GPUCTL_AGENT_LIMITS_LIMITS_REPORT_H_
#define GPUCTL_AGENT_LIMITS_LIMITS_REPORT_H_

#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/job/job_layout.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// What Hello says; nothing where no limits were set.
std::optional<gpuctl::v1::NodeLimitsState> DescribeNodeLimits(const RootPaths& paths,
                                                              const std::string& boot_id,
                                                              Clock& clock);

// `gpuctl-agent limits`: prints, as one line of JSON, what the limits call for if nobody has asked,
// for a laptop that ends what cannot end itself; to ask is no contact. {job_runs, results_home,
// due: "limit:idle" or null, next: the limit that releases it next or null, in_s, can_release,
// cannot_release_why, release_requests, lease_id}. Exits with 3 where no limits were set.
int RunLimits(const std::string& root);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_LIMITS_LIMITS_REPORT_H_
