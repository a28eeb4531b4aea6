// The shell commands with which another command finds a job's place and environment.
#ifndef GPUCTL_CLIENT_VERBS_JOB_SHELL_H_
#define GPUCTL_CLIENT_VERBS_JOB_SHELL_H_

#include <string>

#include "client/runs/run_store.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

// Returns shell text that goes into the job's work directory and exports the job's environment;
// more text may follow. Secrets are not part of it, because they are stored nowhere. `root` is the
// node's.
std::string EnterJob(const RunRow& row, const gpuctl::v1::JobSpec& spec, int attempt,
                     const std::string& root);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_JOB_SHELL_H_
