// Whether a run says which of the files that its job makes are results.
#ifndef GPUCTL_CLIENT_WORKDIR_NAMED_RESULTS_H_
#define GPUCTL_CLIENT_WORKDIR_NAMED_RESULTS_H_

#include <string>

#include "client/spec/run_spec.h"

namespace gpuctl {

// Returns true when `spec` has patterns of checkpoints or artifacts, uses the built-in trainer, or
// when its command, or a script that the command names, mentions GPUCTL_CHECKPOINT_DIR. `workdir`:
// the directory here that is sent ("" for none). A script that imports one that mentions it is not
// seen through.
bool NamesResults(const RunSpec& spec, const std::string& workdir);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_WORKDIR_NAMED_RESULTS_H_
