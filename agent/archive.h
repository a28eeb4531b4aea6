// `gpuctl-agent archive`: what was kept of an allocation's jobs (agent/hold/kept_layout.h), for a
// client whose node is gone. It runs on the login node as long as the client's connection.
#ifndef GPUCTL_AGENT_ARCHIVE_H_
#define GPUCTL_AGENT_ARCHIVE_H_

#include <string>

namespace gpuctl {

// The exit code where nothing was kept.
inline constexpr int kExitNothingKept = 74;

// Answers as a bridge does (agent/bridge.h), with the node id of the allocation. `directory` is the
// one of the lease. It serves calls itself: without a guard, a server or a socket, and nothing that
// it is asked starts or changes a job. Returns the exit code: kExitNothingKept after saying so on
// stderr. `in_queue`: Slurm will start the allocation again, so its jobs are not over, and StopJob
// keeps one from going on; where none is left that does, Slurm is told to forget the allocation.
int RunArchive(const std::string& directory, const std::string& bundle_dir, bool in_queue);

// Does what `gpuctl-agent send` does, with the files that were kept.
int RunArchiveSend(const std::string& directory);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_ARCHIVE_H_
