// Files that a job wrote into $GPUCTL_CHECKPOINT_DIR and that belong to no complete checkpoint,
// such as those of a plain torch.save.
#ifndef GPUCTL_AGENT_RESULTS_BESIDE_CHECKPOINTS_H_
#define GPUCTL_AGENT_RESULTS_BESIDE_CHECKPOINTS_H_

#include <sys/stat.h>

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// Calls `visit` for each regular file in ckpt/ that no complete checkpoint's manifest names, in the
// order of PathLess, with its path relative to the job's directory ("ckpt/model.pt"); and for what
// cannot be read: each directory that cannot be listed, and with st_mode 0 a name that cannot be
// looked at. Stops when it returns false. Leaves out hidden names directly in ckpt/, which are
// checkpoints being written, and does not follow symlinks below ckpt/.
absl::Status ForEachBesideCheckpoints(
    const JobPaths& job, const std::function<bool(const std::string&, const struct stat&)>& visit);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_RESULTS_BESIDE_CHECKPOINTS_H_
