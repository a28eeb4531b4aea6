// A launch: a plan on its machine, ready to be started.
#ifndef GPUCTL_CLIENT_LAUNCH_LAUNCH_H_
#define GPUCTL_CLIENT_LAUNCH_LAUNCH_H_

#include "client/base/node_target.h"
#include "client/plan/launch_plan.h"
#include "client/runs/run_store.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

struct Launch {
  RunRow row;                         // the entry for the list of runs
  gpuctl::v1::StartJobRequest start;  // the job, with its secrets
};

// Adds to the job of `plan` what depends on its machine: the trainer that was chosen for it (null
// for a run without), and what a cluster is to keep of it.
void CompleteJob(const LaunchPlan& plan, const NodeTarget& target, const ChosenTrainer* trainer,
                 gpuctl::v1::JobSpec& job);

// Returns the launch of `plan` on the machine `target`, with the trainer that was chosen for it
// (null for a run without). Nothing happens yet.
Launch BeginLaunch(const LaunchPlan& plan, const NodeTarget& target,
                   const ChosenTrainer* trainer = nullptr);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LAUNCH_LAUNCH_H_
