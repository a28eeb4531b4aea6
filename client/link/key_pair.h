// Pairs of ssh keys that gpuctl makes for itself.
#ifndef GPUCTL_CLIENT_LINK_KEY_PAIR_H_
#define GPUCTL_CLIENT_LINK_KEY_PAIR_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// Makes an ed25519 key pair at `path` (0600) and `path`.pub unless it is there. Returns the public
// key line. Several processes may do it at once.
absl::StatusOr<std::string> EnsureKeyPair(const std::string& path, absl::string_view comment);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LINK_KEY_PAIR_H_
