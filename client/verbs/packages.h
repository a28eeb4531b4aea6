// The Python packages that a run's job finds on its machine.
#ifndef GPUCTL_CLIENT_VERBS_PACKAGES_H_
#define GPUCTL_CLIENT_VERBS_PACKAGES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// Parses lines "NAME==VERSION". FAILED_PRECONDITION when one is something else: a node may answer
// anything.
absl::StatusOr<std::vector<std::string>> ParsePackages(absl::string_view text);

// Asks the run's machine, within half a minute: the Python of a .venv or venv in the work
// directory, else that of the job's environment. The first line is Python's own version. Errors
// have hints. NOT_FOUND when the job has no Python, or its machine or directory is gone.
absl::StatusOr<std::vector<std::string>> AskForPackages(CommandContext& context, const RunRow& row);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_PACKAGES_H_
