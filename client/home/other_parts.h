// The parts of a run on several nodes of one allocation. The allocation ends as one, so what is on
// one node goes with all of them.
#ifndef GPUCTL_CLIENT_HOME_OTHER_PARTS_H_
#define GPUCTL_CLIENT_HOME_OTHER_PARTS_H_

#include <optional>

#include "client/base/paths.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// True when this laptop has noted that all results of a run, which has ended, are at home.
bool IsNotedHome(const ClientPaths& paths, const RunRow& row);

struct OtherParts {
  bool all_home = true;         // as noted here, of each of them; true where there are none
  std::optional<RunRow> first;  // the part on the first node, where `row` is another one
};
// Returns what is known of the parts beside `row`. A run whose parts have machines of their own has
// none. Any thread may call it.
OtherParts FindOtherParts(const ClientPaths& paths, const RunRow& row);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_HOME_OTHER_PARTS_H_
