// Which environment a job needs: one key for the same `setup` on the same inputs.
#ifndef GPUCTL_AGENT_ENVS_ENV_KEY_H_
#define GPUCTL_AGENT_ENVS_ENV_KEY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/base/environment.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

struct EnvKey {
  std::string digest;               // sha256, hex
  std::vector<std::string> inputs;  // the paths below work/ that count, sorted
};

// Returns the key of the job's environment. It depends on
//   - the text of `setup`, the system (kernel's name, processor, distribution) and the Python that
//     PATH finds;
//   - files and directories below `work` that `setup` names, also by patterns with * and ?;
//   - what package managers read without being told: uv.lock, pyproject.toml, requirements*.txt …;
//   - files that requirements name with -r, -c and -e;
//   - the header (PEP 723) of scripts that the command names;
//   - variables of `environment` that `setup` names or that configure package managers (UV_*,
//     PIP_*, CONDA_* …), less those that gpuctl sets itself. Of secrets only the names count;
//   - the whole work directory as it was sent, when `setup` names ".".
// A link out of `work` counts by its target's name, and what cannot be read by that fact. Of a file
// above 1 GiB the size and both ends count, of a directory's files behind the first 10,000 nothing.
absl::StatusOr<EnvKey> ComputeEnvKey(const gpuctl::v1::JobSpec& spec, const std::string& work,
                                     const Environment& environment);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_ENVS_ENV_KEY_H_
