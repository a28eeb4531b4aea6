// A job's setup: makes or finds the environment, in the job's direct child, before the job begins.
#ifndef GPUCTL_AGENT_SHIM_SETUP_H_
#define GPUCTL_AGENT_SHIM_SETUP_H_

#include "agent/base/environment.h"
#include "agent/shim/secret_block.h"
#include "common/job/job_layout.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

struct SetupOptions {
  const gpuctl::v1::JobSpec& spec;
  const JobPaths& paths;
  int attempt = 1;
  Environment environment;               // the job's, without the environment that is made
  const SecretBlock* secrets = nullptr;  // of the setup, too
};

// Runs spec.setup() unless its environment is there, and returns the job's environment with it.
// Ends the process when there is none: with the setup's exit code or signal, or with 126 for a
// cause of ours. Its lifecycle lines (packages, setup_ended) go to `news`; then it
// waits for a byte at `go`, and ends the process when there comes none.
//
// The environment's lock is held from the look for it until it is whole, and nothing that setup
// starts has it. A process of the setup that is left at its end is killed, as is one that an
// earlier setup of the same environment left.
Environment RunSetup(const SetupOptions& options, int news, int go);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SHIM_SETUP_H_
