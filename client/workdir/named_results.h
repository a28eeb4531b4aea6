// What a run's command, and the scripts that it names, say themselves: whether they name results,
// and what they ask a Slurm cluster for.
#ifndef GPUCTL_CLIENT_WORKDIR_NAMED_RESULTS_H_
#define GPUCTL_CLIENT_WORKDIR_NAMED_RESULTS_H_

#include <string>
#include <vector>

#include "client/spec/run_spec.h"

namespace gpuctl {

// Returns true when `spec` has patterns of checkpoints or artifacts, uses the built-in trainer, or
// when its command, or a script that the command names, mentions GPUCTL_CHECKPOINT_DIR. `workdir`:
// the directory here that is sent ("" for none). A script that imports one that mentions it is not
// seen through.
bool NamesResults(const RunSpec& spec, const std::string& workdir);

// Returns the options of Slurm's sbatch, such as "--time=01:00:00", that are in lines "#SBATCH" of
// the scripts that the command of `spec` names in `workdir` ("" for none). Nothing here reads them.
std::vector<std::string> SbatchOptions(const RunSpec& spec, const std::string& workdir);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_WORKDIR_NAMED_RESULTS_H_
