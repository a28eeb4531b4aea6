// A run brought up to date without showing it, and the options of its Follower.
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

// For a job that is to be watched, not started.
absl::StatusOr<FollowOptions> WatchOptions(CommandContext& context, RunStore& store,
                                           const RunRow& row);

enum class Caught { kUp, kOver, kNot };
// Brings the mirror up to date without showing anything: kOver when the job is over and all is
// here, kUp when the mirror has what the node had when it was asked, or when `until` returned true.
// kNot after `give_up_after` without the node; *error says why. An ended run costs nothing.
absl::StatusOr<Caught> CatchUp(CommandContext& context, RunStore& store, RunRow& row,
                               absl::Duration give_up_after, absl::Status* error);

// Follows until `until` (on another thread, after each message), the job's end, or `timeout`
// (DEADLINE_EXCEEDED). Ctrl-C is CANCELLED.
absl::Status FollowQuietly(CommandContext& context, RunStore& store, RunRow& row,
                           LinkFactory& links, absl::Duration timeout, absl::Duration give_up_after,
                           const std::function<bool()>& until);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_FOLLOW_CATCH_UP_H_
