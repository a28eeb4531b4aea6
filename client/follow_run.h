// What all verbs that follow a run share: the options of its Follower, recording its end.
#ifndef GPUCTL_CLIENT_FOLLOW_RUN_H_
#define GPUCTL_CLIENT_FOLLOW_RUN_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/context.h"
#include "client/follow.h"
#include "client/link.h"
#include "client/mirror_reader.h"
#include "client/run_status.h"

namespace gpuctl {

// For a job that is to be watched, not started.
absl::StatusOr<FollowOptions> WatchOptions(CommandContext& context, RunStore& store,
                                           const RunRow& row);

// What the mirror says about the run now.
absl::StatusOr<RunStatus> MirroredStatus(CommandContext& context, const RunRow& row);

// Stores the run's progress and, if the mirror is complete or `follow_result` says that the job is
// lost, its end, into the list of runs and into `row`.
absl::Status RecordOutcome(CommandContext& context, RunStore& store, RunRow& row,
                           const absl::Status& follow_result);

enum class Caught { kUp, kOver, kNot };
// Brings the mirror up to date without showing anything: kOver when the job is over and all is
// here, kUp when the mirror has what the node had when it was asked, or when `until` returned true.
// kNot after `give_up_after` without the node; *error says why. An ended run costs nothing.
absl::StatusOr<Caught> CatchUp(CommandContext& context, RunRow& row, absl::Duration give_up_after,
                               absl::Status* error);

// Follows until `until` (on another thread, after each message), the job's end, or `timeout`
// (DEADLINE_EXCEEDED). Ctrl-C is CANCELLED.
absl::Status FollowQuietly(CommandContext& context, RunRow& row, LinkFactory& links,
                           absl::Duration timeout, absl::Duration give_up_after,
                           const std::function<bool()>& until);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_FOLLOW_RUN_H_
