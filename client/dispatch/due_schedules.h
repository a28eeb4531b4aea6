// Schedules of batches: the entries that are due.
#ifndef GPUCTL_CLIENT_DISPATCH_DUE_SCHEDULES_H_
#define GPUCTL_CLIENT_DISPATCH_DUE_SCHEDULES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/batch/batch_store.h"
#include "client/runs/context.h"

namespace gpuctl {

// Makes the entries of all schedules whose time has come: one for each schedule, however many of
// its times went by unseen. Several processes may do this at once. Says which schedule cannot go
// on.
absl::Status MakeDueEntries(CommandContext& context, BatchStore& batches);

// Returns the first time of the schedule after `after_ms`, in this computer's time zone.
absl::StatusOr<int64_t> NextTimeMs(const std::string& cron, int64_t after_ms);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_DISPATCH_DUE_SCHEDULES_H_
