// The part of the run file that names the login for a private image. Pure.
#ifndef GPUCTL_CLIENT_SPEC_REGISTRY_REQUEST_H_
#define GPUCTL_CLIENT_SPEC_REGISTRY_REQUEST_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// A login at a container registry. Its fields are as written, and no error about them shows
// `password`, because somebody may have written the password itself.
struct RegistryRequest {
  std::string server;    // empty: that of the image
  std::string username;  // empty: there is no login
  std::string password;  // the name of a secret, never its value
  bool empty() const { return username.empty() && password.empty() && server.empty(); }
};

// Parses "USER:SECRET" or "USER:SECRET@SERVER".
absl::StatusOr<RegistryRequest> ParseRegistryRequest(absl::string_view text);

// Makes `request.server` that which CheckedRegistry returns. INVALID_ARGUMENT when a part cannot be
// what it should be.
absl::Status CheckRegistryRequest(RegistryRequest& request);

// Returns INVALID_ARGUMENT when the login is not for the registry of `image`, or there is no image.
absl::Status CheckRegistryFits(const RegistryRequest& request, absl::string_view image);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SPEC_REGISTRY_REQUEST_H_
