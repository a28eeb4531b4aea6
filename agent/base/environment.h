// The environment in which a job starts.
#ifndef GPUCTL_AGENT_BASE_ENVIRONMENT_H_
#define GPUCTL_AGENT_BASE_ENVIRONMENT_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/job/job_layout.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

using Environment = std::map<std::string, std::string>;

// Parses "A=b\0C=d\0", the kernel's form. Ignores entries without '='.
Environment ParseEnvironmentBlock(absl::string_view block);

// Returns this process's own environment.
Environment OwnEnvironment();

// Returns what the environment of jobs begins with: PID 1's, where images put PATH and
// LD_LIBRARY_PATH. Our own where that cannot be read, and in a held root (held_root.h): there the
// batch script's is what says which GPUs of the machine are ours.
Environment BaseEnvironment(const RootPaths& paths);

// True for a variable that holds the provider's account or instance key. Jobs do not get those.
bool IsProviderKey(absl::string_view name);

// Returns the job's environment without its secrets: `base` (BaseEnvironment) without provider keys
// and GPUCTL_*; the
// spec's variables; defaults for PATH, HOME and PYTHONUNBUFFERED; and the variables that a job may
// rely on:
//   UV_CACHE_DIR PIP_CACHE_DIR CONDA_PKGS_DIRS   below the root's caches/, unless they are set or
//                           the machine has such a cache at its usual place
//   GPUCTL_RUN_ID GPUCTL_JOB_ID GPUCTL_ATTEMPT
//   GPUCTL_CHECKPOINT_DIR   where checkpoints are published
//   GPUCTL_METRICS          a FIFO for lines of JSON
//   GPUCTL_NODE_RANK GPUCTL_NODES   the machine's number among the job's machines, and how many
//   these
//                           are; the spec's own, else 0 and 1
//   GPUCTL_RESUME_FROM      the newest verified checkpoint: `resume_from`, or, when that is empty,
//                           what the spec's own names, relative to work/; else absent
//   CUDA_VISIBLE_DEVICES    the GPUs `gpus`, when there is such a list
//   GPUCTL_NODES GPUCTL_NODE_RANK MASTER_ADDR MASTER_PORT   of a member of a gang, as its members
//                           agreed for this attempt. RANK, WORLD_SIZE, LOCAL_RANK for one process
//                           on each machine, GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME: unless set
//   GPUCTL_VOLUME           where the volume that was asked for is mounted, below our own
//                           $GPUCTL_MOUNT_ROOT (which stands for /); else absent
Environment JobEnvironment(Environment base, const gpuctl::v1::JobSpec& spec, int attempt,
                           const JobPaths& paths, const std::string& resume_from,
                           const std::optional<std::vector<std::string>>& gpus = std::nullopt);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_ENVIRONMENT_H_
