// Random identities.
#ifndef GPUCTL_COMMON_BASE_IDS_H_
#define GPUCTL_COMMON_BASE_IDS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace gpuctl {

// Returns `bytes` bytes from the system's random source as lower-case hex.
std::string RandomHex(int bytes);

// Return "r-" or "j-" and 12 random hex digits.
std::string NewRunId();
std::string NewJobId();

// True when `id` may safely name a directory: 1 to 64 characters of [a-z0-9-], not beginning with
// '-'. The ids above are. Check ids from a peer with this before they become paths.
bool IsValidId(absl::string_view id);

// Returns a name such as "amber-fox-3": an adjective, an animal and a number, from the system's
// random source.
std::string NewReadableName();

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BASE_IDS_H_
