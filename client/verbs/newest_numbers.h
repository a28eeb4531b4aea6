// The newest numbers of a live run, from what this laptop has stored of it.
#ifndef GPUCTL_CLIENT_VERBS_NEWEST_NUMBERS_H_
#define GPUCTL_CLIENT_VERBS_NEWEST_NUMBERS_H_

#include <optional>

#include "absl/time/time.h"
#include "client/runs/run_store.h"
#include "client/streams/mirror.h"

namespace gpuctl {

// Gives `row` its newest step, number of steps and loss: from the end of its metrics, or from the
// output of a job that writes none. Returns the time from the newest step to the last one, at the
// pace of the stored end of the metrics; absent where it cannot be told. What cannot be read leaves
// the row as it is.
std::optional<absl::Duration> ReadNewestNumbers(const MirrorPaths& mirror, RunRow& row);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_NEWEST_NUMBERS_H_
