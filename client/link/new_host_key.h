// Makes the host key that a rented machine gets.
#ifndef GPUCTL_CLIENT_LINK_NEW_HOST_KEY_H_
#define GPUCTL_CLIENT_LINK_NEW_HOST_KEY_H_

#include <string>

#include "absl/status/statusor.h"

namespace gpuctl {

struct NewHostKey {
  std::string private_key;  // lines in OpenSSH's format; a secret
  std::string public_key;   // "ssh-ed25519 <base64>"
};

// Returns a new ed25519 pair. It is only in memory: whoever knows its private part can pretend to
// be the machine.
absl::StatusOr<NewHostKey> MakeHostKey();

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_LINK_NEW_HOST_KEY_H_
