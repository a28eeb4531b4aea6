// The node's end of a pull: `gpuctl-agent send --root R` runs over ssh, with the frames of
// common/transfer/pull.h on its stdin and stdout.
#ifndef GPUCTL_AGENT_TREES_SEND_H_
#define GPUCTL_AGENT_TREES_SEND_H_

#include <string>

#include "absl/status/status.h"

namespace gpuctl {

// Serves one pull: a file or directory of a job's work/ or ckpt/. It reaches nothing outside these,
// whatever symlinks the job has made. The job may be running and writing. Errors were sent to the
// peer where possible. Does not close the descriptors; sets SIGPIPE to be ignored.
absl::Status SendPull(const std::string& root, int in_fd, int out_fd);

// Runs the subcommand: SendPull, with its error on stderr. Returns the process's exit code.
int RunSend(const std::string& root, int in_fd = 0, int out_fd = 1);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_TREES_SEND_H_
