// Pins the host key that a node showed first, and refuses any other.
#ifndef GPUCTL_CLIENT_BASE_HOST_KEYS_H_
#define GPUCTL_CLIENT_BASE_HOST_KEYS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/base/node_target.h"

namespace gpuctl {

// Returns the name under which a node's host key is pinned: its own, or that of its gateway, which
// has one key for all machines behind it. A rented machine whose id is the user's name for ssh is
// behind one: there the user's name tells the machines apart.
std::string PinName(const NodeTarget& target);

// Compares `fingerprint` with the one pinned for `name` in directory `dir`; pins it when there is
// none. PERMISSION_DENIED when it differs: the machine was rebuilt, or somebody is in between.
absl::Status CheckHostKey(const std::string& dir, absl::string_view name,
                          absl::string_view fingerprint);

// Compares `fingerprint` with that of the key that gpuctl gave to the machine `name` when it rented
// it. PERMISSION_DENIED with LinkFault::kForeignHostKey when it differs: somebody is in between, or
// the machine did not take its key.
absl::Status CheckGivenHostKey(absl::string_view name, absl::string_view given,
                               absl::string_view fingerprint);

// Returns the path of the file in `dir` with the pin for `name`.
std::string HostKeyFile(const std::string& dir, absl::string_view name);

// Where those files of KeepKnownHost are, below the state directory.
inline constexpr char kKnownHostsDir[] = "ssh/known_hosts";

// Writes the host key of `name` ("ssh-ed25519 <base64>") to its known_hosts file in `dir`, for
// OpenSSH, which needs the key where a fingerprint is enough for us. It stands there under
// KnownHostAlias. Does nothing when the file has it already.
absl::Status KeepKnownHost(const std::string& dir, absl::string_view name, absl::string_view key);
// Returns the HostKeyAlias for `name`: a word that is safe in every file.
std::string KnownHostAlias(absl::string_view name);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_HOST_KEYS_H_
