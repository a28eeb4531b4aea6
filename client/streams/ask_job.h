// One question about a job to its node, which leaves the mirror and its lock alone.
#ifndef GPUCTL_CLIENT_STREAMS_ASK_JOB_H_
#define GPUCTL_CLIENT_STREAMS_ASK_JOB_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/link/link.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// The answer of a node.
struct JobAnswer {
  gpuctl::v1::Heartbeat heartbeat;
  std::string lifecycle;  // all of it, when the question had a cursor for it
};

// Asks with a short Watch, which every agent knows. `cursors` are the streams whose sizes the
// heartbeat tells; the one of the lifecycle must be at 0. The Watch of another client is not ended.
//   NOT_FOUND    the node has no such job
//   UNAVAILABLE  the link broke, or no answer came within `patience`
absl::StatusOr<JobAnswer> AskJob(Link& link, const std::string& job_id,
                                 const std::vector<gpuctl::v1::Cursor>& cursors,
                                 absl::Duration patience);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_STREAMS_ASK_JOB_H_
