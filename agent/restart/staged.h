// Jobs that are accepted while their Slurm allocation still waits for its first start: the login
// node's agent puts them on the cluster's shared file system, as if an earlier start had kept them
// (agent/hold/kept_layout.h), and the first start takes them. So no client is needed then. That
// start is also the node, with the identity and the limits, that the client has found here before.
#ifndef GPUCTL_AGENT_RESTART_STAGED_H_
#define GPUCTL_AGENT_RESTART_STAGED_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/job/job_layout.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// True for the copy of an allocation that has not begun.
bool IsStaged(const RootPaths& copy);

// Makes the copy for the allocation `job` in a lease's directory, without jobs, and puts the
// programs of `bundle_dir` there; returns its path, also where it was there before.
// FAILED_PRECONDITION when nobody knows that nodes see the directory (IsSeenByNodes), and when the
// allocation has begun.
absl::StatusOr<std::string> MakeStaged(const std::string& directory, const std::string& job,
                                       const std::string& bundle_dir);

// Runs the subcommand: MakeStaged. Prints one line, kStageReady of common/release or the error, and
// returns the process's exit code.
int RunStage(const std::string& directory, const std::string& job, const std::string& bundle_dir);

// Accepts a job, of one run at a time; what it needs was sent to the store of `again`
// (RootPaths::trees). Returns the job also where it was accepted before. FAILED_PRECONDITION for
// one that needs a client at its start, and with KIND_CONTENT_MISSING when a tree must be sent
// again. Other errors as JobTable::Start.
absl::StatusOr<gpuctl::v1::Job> AcceptStaged(const RootPaths& copy, const std::string& node_id,
                                             const gpuctl::v1::StartJobRequest& request,
                                             Clock& clock);

// Takes an accepted job back, because the allocation has begun meanwhile. NOT_FOUND when its start
// has the job, or there is no such job.
absl::Status TakeBackStaged(const RootPaths& copy, const std::string& job_id);

// Takes all jobs of the copy for the allocation's first start. NOT_FOUND when there is none, or the
// client has taken them back: either of both gets them.
absl::Status TakeStaged(const RootPaths& copy);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_RESTART_STAGED_H_
