// Whether a user has given up a run that was taken away: gpuctl stop or gpuctl down named it.
// Nobody resumes it by itself then.
#ifndef GPUCTL_CLIENT_RUNS_GIVEN_UP_H_
#define GPUCTL_CLIENT_RUNS_GIVEN_UP_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// `run_dir`: ClientPaths::MirrorDir of the run.
bool IsGivenUp(const std::string& run_dir);
// Records it for a run whose end is that its machine was taken away; does nothing for others.
// Durable when it returns.
absl::Status GiveUpIfTakenAway(const std::string& run_dir, const RunRow& row);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RUNS_GIVEN_UP_H_
