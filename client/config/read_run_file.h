// The run file from the disk, and the settings that count below it.
#ifndef GPUCTL_CLIENT_CONFIG_READ_RUN_FILE_H_
#define GPUCTL_CLIENT_CONFIG_READ_RUN_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/config/settings.h"
#include "client/runs/context.h"
#include "client/spec/run_spec.h"

namespace gpuctl {

// Reads the run file `path`; its work directory becomes relative to the current one. Errors are for
// the user and have hints, which name the verb that takes a command: launch or submit.
absl::StatusOr<RunSpec> ReadRunFile(const std::string& path, const std::string& verb = "launch");

// Reads the settings for the work directory `work`, and says which of the project's do not count.
absl::StatusOr<Settings> ReadSettings(CommandContext& context, const std::string& work);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_CONFIG_READ_RUN_FILE_H_
