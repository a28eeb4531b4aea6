// What to do about some errors that end jobs, found in their output.
#ifndef GPUCTL_CLIENT_FOLLOW_OUTPUT_HINT_H_
#define GPUCTL_CLIENT_FOLLOW_OUTPUT_HINT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "client/streams/mirror_reader.h"

namespace gpuctl {

// An error that ends a job is within so many bytes of the end of its output.
inline constexpr size_t kHintBytes = 16 << 10;

// The hint for a machine that has no `python`.
inline constexpr char kNoPythonHint[] =
    "many machines have python3 but no python: write python3, or --setup 'python3 -m venv "
    "$GPUCTL_ENV_DIR', which has both";

// Returns a hint for people on what a command that failed printed last; "" when there is none.
std::string HintOfOutput(absl::string_view tail);

// Does the same for the stored output of a run. What cannot be read gives no hint.
std::string HintOfOutput(MirrorReader& mirror);

// Returns the last line of a run's stored output that is not empty, safe for a terminal; "" when
// there is none.
std::string LastLineOfOutput(MirrorReader& mirror);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_FOLLOW_OUTPUT_HINT_H_
