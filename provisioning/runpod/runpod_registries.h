// The logins at container registries that Runpod keeps for us. For the adapter's own files only.
#ifndef GPUCTL_PROVISIONING_RUNPOD_RUNPOD_REGISTRIES_H_
#define GPUCTL_PROVISIONING_RUNPOD_RUNPOD_REGISTRIES_H_

#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "provisioning/market/types.h"
#include "provisioning/rest/rest_api.h"

namespace gpuctl {

// Returns the id of the entry called `name`; makes it from `login` when there is none. Runpod never
// shows what an entry holds, so its name must tell it.
absl::StatusOr<std::string> EnsureRunpodRegistry(const RestApi& api, const std::string& name,
                                                 const RegistryLogin& login);

// Removes the entries of `owner` (IsStoredLoginOf) except those with the ids `used`, and except
// those that Runpod itself calls used. Returns their number.
absl::StatusOr<int> RemoveRunpodRegistries(const RestApi& api, absl::string_view owner,
                                           const std::set<std::string>& used);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_RUNPOD_RUNPOD_REGISTRIES_H_
