// `gpuctl doctor --self-test`: what really holds on this computer, by doing it. It asks no market
// and no other machine, does not touch what an installed gpuctl has, and leaves nothing behind.
#ifndef GPUCTL_CLIENT_SELF_TEST_SELF_TEST_H_
#define GPUCTL_CLIENT_SELF_TEST_SELF_TEST_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "client/runs/context.h"
#include "client/self_test/check.h"

namespace gpuctl {

// Does all parts within a minute, and passes each check on as it ends. A part that takes too long
// is a failed check. CANCELLED (exit code 130) when a signal interrupted it; the place is clean
// then, too. Other errors: there is no temporary directory.
absl::Status RunSelfTest(CommandContext& context,
                         const std::function<void(const TestCheck&)>& on_check);

// The process of one part, or of a helper of one, in the directory `dir`. Returns the exit code.
// INVALID_ARGUMENT when there is no such part.
absl::StatusOr<int> RunSelfTestPart(CommandContext& context, const std::string& part,
                                    const std::string& dir);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SELF_TEST_SELF_TEST_H_
