// A cluster whose scheduler is Slurm, as a market: an allocation is a rented machine. Its commands
// run on the login node; what they print is read by slurm_text.h.
#ifndef GPUCTL_PROVISIONING_SLURM_SLURM_PROVIDER_H_
#define GPUCTL_PROVISIONING_SLURM_SLURM_PROVIDER_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "provisioning/market/provider.h"
#include "provisioning/slurm/login_node.h"

namespace gpuctl {

// What the user wants of a cluster. Empty: Slurm's own default.
struct SlurmOptions {
  std::string partition;  // the only one to look at
  std::string account;
  std::string qos;
  std::string constraint;
  // Of an allocation whose run has no time limit; zero: the partition's, a day at most.
  absl::Duration time;
  // The model of the GPUs in a partition whose generic resources have no type: "gpu" -> "A100".
  std::map<std::string, std::string> gpus;
  // Words for sbatch's command line, after ours.
  std::vector<std::string> flags;
  // Our own words that this cluster refuses, by their names: "--signal", "--no-requeue", …
  std::set<std::string> without;
  // The directory on the login node in which results are kept, if the nodes see it, too: absolute,
  // or relative to the home directory with "~/" before it. Empty: nothing is kept.
  std::string results = "~/.gpuctl-results";
};

// Returns the directory of a lease's results on the login node, as a word for its shell; "" where
// nothing is kept. `label` is that of the lease.
std::string ResultsWord(const std::string& results, absl::string_view label);

// Returns the name, in that directory, of the one for node `node` of an allocation that has
// several; node 0 has the directory itself.
std::string ResultsOfNode(int node);

// The name under which an allocation is a lease: "gpuctl-<owner>-<lease>" is its job's name, its
// number the instance's id. An allocation costs nothing here, and always has a time limit.
std::unique_ptr<Provider> MakeSlurmProvider(std::shared_ptr<LoginNode> login, SlurmOptions options,
                                            Clock& clock);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_SLURM_SLURM_PROVIDER_H_
