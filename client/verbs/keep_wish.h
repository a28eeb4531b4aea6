// What gpuctl keep does of what was asked for a run, in a process of its own.
#ifndef GPUCTL_CLIENT_VERBS_KEEP_WISH_H_
#define GPUCTL_CLIENT_VERBS_KEEP_WISH_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/runs/context.h"

namespace gpuctl {

// Does what is due of a wish that no living gpuctl does, and prints what came of it as JSON.
// Returns the exit code: 0 also where another process does it or has done it. An error leaves the
// wish as it is.
absl::StatusOr<int> DoWish(CommandContext& context, const std::string& wish_id);

// Drops what was asked for a run, for `keep --forget`. NOT_FOUND when nothing is;
// FAILED_PRECONDITION when a living gpuctl does it.
absl::Status ForgetWishes(CommandContext& context, const std::string& reference);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_KEEP_WISH_H_
