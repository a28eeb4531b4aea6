// What the same work took before: an estimate to show before a launch.
#ifndef GPUCTL_CLIENT_MARKET_LAST_TIME_H_
#define GPUCTL_CLIENT_MARKET_LAST_TIME_H_

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "client/market/holdings.h"
#include "client/runs/run_store.h"

namespace gpuctl {

struct LastTime {
  std::string run_name;
  absl::Duration took;  // from the node's acceptance to the end of the job
  double usd = 0;       // at most; its own share of its machine's cost
};

// The work, and the GPUs that it would get.
struct Work {
  std::string workdir;  // absolute
  std::string command;  // as RunRow::command
  std::string gpu_name;
  int gpu_count = 0;
};

// Returns the newest run of the same work directory and program that succeeded on a rented machine
// with the same GPUs; nothing where there is none, or where the records cannot be read.
std::optional<LastTime> FindLastTime(Holdings& holdings, RunStore& store, const Work& work,
                                     int64_t now_ms);

// Returns "1h 10m, $2.31 (train-3)".
std::string DescribeLastTime(const LastTime& last);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_MARKET_LAST_TIME_H_
