// The values of the secrets that a run names, for its job and for the registry of its image.
#ifndef GPUCTL_CLIENT_MARKET_SECRET_VALUES_H_
#define GPUCTL_CLIENT_MARKET_SECRET_VALUES_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/keys/market_access.h"
#include "client/market/offer_plan.h"
#include "client/runs/context.h"
#include "client/spec/run_spec.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// Returns the values of spec.secrets, as KeyStore::FindSecret finds them. NOT_FOUND (exit code 2)
// names a secret that has no value.
absl::StatusOr<std::map<std::string, std::string>> ReadSecrets(CommandContext& context,
                                                               const RunSpec& spec);

// Returns the login for the image of `spec`; nothing when it needs none. Errors as of ReadSecrets,
// and usage errors for a login that does not go with the image.
absl::StatusOr<std::optional<RegistryLogin>> ReadRegistryLogin(CommandContext& context,
                                                               const RunSpec& spec);

// Takes out of `markets` those that run no image of the user's, or cannot be given its login, when
// `spec` has an image. Returns why, for each of them. A usage error when the spec names such a
// market, or when none is left.
absl::StatusOr<std::vector<MarketAnswer>> LeaveOutForImage(
    const RunSpec& spec, const std::optional<RegistryLogin>& login, std::vector<Market>& markets);

// Returns those of the run's secrets that a gpuctl without the environment of this one, such as a
// scheduled gpuctl keep, does not find.
absl::StatusOr<std::vector<std::string>> SecretsNotStored(CommandContext& context,
                                                          const RunSpec& spec);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_MARKET_SECRET_VALUES_H_
