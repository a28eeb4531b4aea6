// What a virtual machine's cloud-init does at the first boot.
#ifndef GPUCTL_PROVISIONING_MARKET_USER_DATA_H_
#define GPUCTL_PROVISIONING_MARKET_USER_DATA_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// Returns the user data for cloud-init that runs the start script of `options` as root at the end
// of the first boot, with the variables of its environment, which also go to /etc/environment; and
// that gives sshd the host key, and no other, before it starts. Empty when there is nothing to do.
// INVALID_ARGUMENT for a variable that cannot be passed on, and for more than `max_bytes`, of which
// the message says that `title` takes them.
absl::StatusOr<std::string> CloudInitData(const RentOptions& options, absl::string_view title,
                                          size_t max_bytes);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_MARKET_USER_DATA_H_
