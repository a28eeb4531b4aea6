// Which of several processes this one is, as torchrun and gpuctl say it in the environment. Uses no
// LibTorch.

#ifndef TRAINER_RANKS_RANKS_H_
#define TRAINER_RANKS_RANKS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gpuctl::trainer {

struct Ranks {
  int64_t rank = 0;        // of this process, below size
  int64_t size = 1;        // processes of the run
  int64_t local_rank = 0;  // of this process among those on its machine
  int64_t local_size = 1;  // processes of the run on this machine
  std::string address;     // of rank 0, a name or an IP address
  int64_t port = 0;        // a free one there
};

// Reads WORLD_SIZE, RANK, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT; `environment`
// returns the value of a variable, or "". Without WORLD_SIZE, or with 1, the rest is not looked at.
// Without the two LOCAL_ ones all processes are on this machine if the address is a loopback one,
// else this one is alone here. Throws Error(kBadConfig) that names the variable.
Ranks ReadRanks(const std::function<std::string(const char* name)>& environment);

// Returns how many of `rows` each of the ranks takes: shares as near as possible to `speeds`, which
// are above 0, at least 1 each, and `rows` together. `rows` is at least the number of ranks.
// Depends on nothing else, so that all ranks find the same.
std::vector<int64_t> DivideRows(int64_t rows, const std::vector<double>& speeds);

// Returns equal shares: they differ by 1 at most.
std::vector<int64_t> EqualRows(int64_t rows, int64_t ranks);

}  // namespace gpuctl::trainer

#endif  // TRAINER_RANKS_RANKS_H_
