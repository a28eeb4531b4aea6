// What a run file says of an allocation of a cluster. Pure.
#ifndef GPUCTL_CLIENT_SPEC_SLURM_REQUEST_H_
#define GPUCTL_CLIENT_SPEC_SLURM_REQUEST_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// Accepts the name of a partition, an account, …: a line of text that is no flag. INVALID_ARGUMENT
// for another.
absl::Status CheckSlurmName(const std::string& name);

// Accepts a word for sbatch. INVALID_ARGUMENT for one that begins with no "-", and for one by which
// gpuctl knows its own jobs.
absl::Status CheckSlurmFlag(const std::string& flag);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SPEC_SLURM_REQUEST_H_
