// Runs that are left to a cluster while their allocation waits in the scheduler's queue: it begins
// them without a client.
#ifndef GPUCTL_CLIENT_RENT_LEAVE_IN_QUEUE_H_
#define GPUCTL_CLIENT_RENT_LEAVE_IN_QUEUE_H_

#include "absl/status/status.h"
#include "client/link/link.h"
#include "client/spec/run_spec.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// OK for a run that can begin without a client. Else the error says what it needs one for.
absl::Status CanBeLeft(const RunSpec& spec);

// Prepares the cluster's files for StartJob, while the allocation waits; `links` are those of its
// target (client/node/allocation_links.h). The error says why nothing can be left there.
absl::Status PrepareToLeave(LinkFactory& links, const InstanceId& allocation);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RENT_LEAVE_IN_QUEUE_H_
