// What a cluster's shared file system keeps of allocations, as its login node sees it: one
// directory for each lease, beside each other in the directory of SlurmOptions::results.
#ifndef GPUCTL_PROVISIONING_SLURM_KEPT_RESULTS_H_
#define GPUCTL_PROVISIONING_SLURM_KEPT_RESULTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "provisioning/slurm/login_node.h"

namespace gpuctl {

struct KeptResults {
  std::string label;         // of the lease
  bool has_jobs = false;     // a node has kept jobs there; else it has a token at most
  absl::Duration unchanged;  // since a file was last added or removed, by the login node's clock
  int64_t bytes = 0;         // on the disk; 0 for FindKept
};

// Lists what is kept under `results`. Empty where there is no such directory. Directories whose
// names are no labels are somebody else's. UNKNOWN and others: the login node did not answer, or
// its answer was cut.
absl::StatusOr<std::vector<KeptResults>> ListKept(LoginNode& login, const std::string& results);

// Does the same for one lease, without its size. Empty: nothing is there.
absl::StatusOr<std::vector<KeptResults>> FindKept(LoginNode& login, const std::string& results,
                                                  absl::string_view label);

// Removes all that is kept of one lease; OK where nothing is. INVALID_ARGUMENT for a text that is
// no label. After an error some of it may be left.
absl::Status RemoveKept(LoginNode& login, const std::string& results, absl::string_view label);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_SLURM_KEPT_RESULTS_H_
