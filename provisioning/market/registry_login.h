// Logins at container registries, and what markets say of images that they cannot pull. Pure.
#ifndef GPUCTL_PROVISIONING_MARKET_REGISTRY_LOGIN_H_
#define GPUCTL_PROVISIONING_MARKET_REGISTRY_LOGIN_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// The registry of images whose names have no server.
inline constexpr char kDockerHub[] = "docker.io";

// Returns the server of an image's registry, as container programs read it from the image's name:
// "ghcr.io" for "ghcr.io/team/tool:1", kDockerHub for "team/tool".
std::string RegistryOfImage(absl::string_view image);

// Returns `text`, "HOST" or "HOST:PORT", in lower case and without "https://"; kDockerHub for its
// other names. INVALID_ARGUMENT for anything else.
absl::StatusOr<std::string> CheckedRegistry(absl::string_view text);

// Returns "USER at SERVER", for people.
std::string DescribeLogin(const RegistryLogin& login);

// Returns the name under which a market keeps `login` for us. It is the same for the same login,
// owner (see LeaseLabel) and `secret`, and shows nothing of the password to whoever lacks `secret`.
std::string StoredLoginName(absl::string_view owner, const RegistryLogin& login,
                            absl::string_view secret);
// True for a name that StoredLoginName made for this owner.
bool IsStoredLoginOf(absl::string_view owner, absl::string_view name);

// True for the words of a container daemon whose image cannot be pulled: it is not there, or the
// registry refuses.
bool SaysImageFails(absl::string_view words);

// Returns `text`, or the status with its message, with "[hidden]" in place of the password: a
// market may repeat it in its words.
std::string WithoutPassword(absl::string_view text, const RegistryLogin& login);
absl::Status WithoutPassword(const absl::Status& status, const RegistryLogin& login);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_MARKET_REGISTRY_LOGIN_H_
