// Brings a run up to date without showing it, and makes the options of its Follower.
#ifndef GPUCTL_CLIENT_FOLLOW_CATCH_UP_H_
#define GPUCTL_CLIENT_FOLLOW_CATCH_UP_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "client/streams/follower.h"

namespace gpuctl {

class LinkFactory;

// Returns options for a job to watch, not to start.
absl::StatusOr<FollowOptions> WatchOptions(CommandContext& context, RunStore& store,
                                           const RunRow& row);

enum class Caught { kUp, kOver, kNot };
// Brings the mirror up to date without showing anything. Returns kOver when the job is over and all
// data is here, kUp when the mirror has all data that the node had at the start, or when `until`
// returned true. Returns kNot after `give_up_after` without the node; *error has the reason. Also
// returns kNot when another process writes the mirror and does not store what the node has; then
// row.end tells whether the job is over. An ended run that is all here costs nothing; what is
// missing of one is brought, and AskAgain may undo its end. Ctrl-Z stops the process.
absl::StatusOr<Caught> CatchUp(CommandContext& context, RunStore& store, RunRow& row,
                               absl::Duration give_up_after, absl::Status* error);

// Follows until `until` is true (called on another thread, after each message), the job's end, or
// `timeout` (DEADLINE_EXCEEDED). Ctrl-C returns CANCELLED.
absl::Status FollowQuietly(CommandContext& context, RunStore& store, RunRow& row,
                           LinkFactory& links, absl::Duration timeout, absl::Duration give_up_after,
                           const std::function<bool()>& until);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_FOLLOW_CATCH_UP_H_
