// The place of a job's processes among all of the job: their numbers, and where they meet.
#ifndef GPUCTL_AGENT_RANKS_RANK_PLACE_H_
#define GPUCTL_AGENT_RANKS_RANK_PLACE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "agent/base/environment.h"

namespace gpuctl {

// The machine's place in the job, from the variables that each job has.
struct RankPlace {
  int node = 0, nodes = 1;  // GPUCTL_NODE_RANK, GPUCTL_NODES
  std::string address;      // MASTER_ADDR; 127.0.0.1 where it is not set
  int port = 0;             // MASTER_PORT; 0: not set, the launcher chooses one
  int local = 1;            // processes on each machine
  int cores = 0;            // of this machine that the job may use; 0: not known

  int first_rank() const { return node * local; }
};

// Reads the place. INVALID_ARGUMENT for variables that are no numbers or do not fit each other, and
// for more processes than kHighestRank allows.
absl::StatusOr<RankPlace> ReadRankPlace(const Environment& environment, int local);

// Returns a TCP port that nothing on this machine uses at the moment.
absl::StatusOr<int> FreePort();

// Returns how many processors this process may use at once: those that it may run on, or fewer
// where its control group has a smaller share of their time. At least 1.
int UsableCores();
// A part of UsableCores: the processors that the text of a control group's cpu.max allows, rounded
// up; 0 when it sets no limit.
int CoresOfLimit(absl::string_view cpu_max);

// Returns the variables of the process with the number `local`, beside those that all have. `port`
// is where the processes meet.
std::vector<std::pair<std::string, std::string>> RankVariables(const RankPlace& place, int local,
                                                               int port,
                                                               const Environment& environment);

// Returns the number of GPUs that a process with this environment sees: those that
// CUDA_VISIBLE_DEVICES lists, else those that the program `nvidia_smi` lists; 0 when that is "" or
// does not answer within half a minute.
int CountGpus(const Environment& environment, const std::string& nvidia_smi);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_RANKS_RANK_PLACE_H_
