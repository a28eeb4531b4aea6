#include "client/market/secret_values.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/keys/key_store.h"
#include "common/base/status_macros.h"
#include "provisioning/market/provider.h"
#include "provisioning/market/registry_login.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

// Refuses the key of a market's account, which a run file of somebody else may ask for: who has it
// rents in the user's name. `to`: who would get it.
absl::Status CheckNoMarketKey(const std::string& name, absl::string_view field,
                              absl::string_view to) {
  for (const std::string& market : MarketNames()) {
    const std::string own = MarketVariable(market, "API_KEY");
    if (own != name && own != absl::StrCat("GPUCTL_", name)) continue;
    return WithExitCode(
        WithHint(absl::InvalidArgumentError(absl::StrCat(
                     field, ": ", name, " is the key of your account; gpuctl sends it to no ", to)),
                 "a job that must rent by itself gets a key of its own under another name"),
        kExitUsage);
  }
  return absl::OkStatus();
}

absl::StatusOr<KeyStore> OpenKeyStore(CommandContext& context) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  return KeyStore(paths.config_dir);
}

// True for names as they are usual, which no password looks like.
bool LooksLikeAName(absl::string_view name) {
  return std::all_of(name.begin(), name.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return absl::ascii_isupper(byte) || absl::ascii_isdigit(byte) || c == '_';
  });
}

absl::Status NoPassword(const std::string& name) {
  const bool shown = LooksLikeAName(name);
  return WithExitCode(
      WithHint(absl::NotFoundError(
                   shown ? absl::StrCat("secret ", name,
                                        ", the password of resources.registry, has no value here")
                         : "the password of resources.registry is the name of a secret, and no "
                           "secret of that name has a value here; it is not shown, because it may "
                           "be the password itself"),
               shown ? absl::StrCat("export ", name, "=... and try again; gpuctl login --secret ",
                                    name, " keeps it for good")
                     : "export GHCR_TOKEN=... and write GHCR_TOKEN, for example; a password that "
                       "was on a command line should be changed"),
      kExitUsage);
}

// Returns why the market cannot run the spec's image; OK when it can.
absl::Status CheckRunsImage(const Provider& provider, const std::optional<RegistryLogin>& login) {
  if (!provider.traits().takes_image) {
    return absl::InvalidArgumentError(
        absl::StrCat(provider.name(), " runs no container images of yours"));
  }
  return login.has_value() ? provider.CheckLogin(*login) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> ReadSecrets(CommandContext& context,
                                                               const RunSpec& spec) {
  std::map<std::string, std::string> values;
  if (spec.secrets.empty()) return values;
  ASSIGN_OR_RETURN(const KeyStore store, OpenKeyStore(context));
  for (const std::string& name : spec.secrets) {
    RETURN_IF_ERROR(CheckNoMarketKey(name, "secrets", "job"));
    const absl::StatusOr<MarketKey> found = store.FindSecret(name);
    if (absl::IsNotFound(found.status())) {
      return WithExitCode(
          WithHint(absl::NotFoundError(absl::StrCat("secret ", name, " has no value here")),
                   absl::StrCat("export ", name, "=... and launch again; gpuctl login --secret ",
                                name, " keeps it for good")),
          kExitUsage);
    }
    RETURN_IF_ERROR(found.status());
    values[name] = found->key;
  }
  return values;
}

absl::StatusOr<std::optional<RegistryLogin>> ReadRegistryLogin(CommandContext& context,
                                                               const RunSpec& spec) {
  const RegistryRequest& asked = spec.registry;
  if (asked.empty()) return std::nullopt;
  if (absl::Status status = CheckRegistryFits(asked, spec.image); !status.ok()) {
    return UsageError(status.message(), "--image and --registry USER:SECRET belong together");
  }
  RETURN_IF_ERROR(CheckNoMarketKey(asked.password, "resources.registry", "registry"));
  ASSIGN_OR_RETURN(const KeyStore store, OpenKeyStore(context));
  absl::StatusOr<MarketKey> found = store.FindSecret(asked.password);
  if (absl::IsNotFound(found.status()) || (found.ok() && found->key.empty())) {
    return NoPassword(asked.password);
  }
  RETURN_IF_ERROR(found.status());
  RegistryLogin login;
  login.server = asked.server.empty() ? RegistryOfImage(spec.image) : asked.server;
  login.username = asked.username;
  login.password = std::move(found->key);
  return std::make_optional(std::move(login));
}

absl::StatusOr<std::vector<MarketAnswer>> LeaveOutForImage(
    const RunSpec& spec, const std::optional<RegistryLogin>& login, std::vector<Market>& markets) {
  std::vector<MarketAnswer> out;
  if (spec.image.empty()) return out;
  for (const Market& market : markets) {
    const absl::Status status = CheckRunsImage(*market.provider, login);
    if (!status.ok()) out.push_back({market.name, status});
  }
  if (out.empty()) return out;
  const absl::string_view field = login.has_value() ? "resources.registry" : "resources.image";
  const bool named = !spec.providers.empty();
  if (named || out.size() == markets.size()) {
    std::vector<std::string> reasons;
    for (const MarketAnswer& answer : out) reasons.emplace_back(answer.status.message());
    return UsageError(absl::StrCat(field, ": ", absl::StrJoin(reasons, "; ")),
                      named ? "leave these out of --provider, or do without the image"
                            : "gpuctl login runpod or vast: they run images");
  }
  markets.erase(std::remove_if(markets.begin(), markets.end(),
                               [&out](const Market& market) {
                                 return std::any_of(out.begin(), out.end(),
                                                    [&market](const MarketAnswer& answer) {
                                                      return answer.market == market.name;
                                                    });
                               }),
                markets.end());
  return out;
}

absl::StatusOr<std::vector<std::string>> SecretsNotStored(CommandContext& context,
                                                          const RunSpec& spec) {
  std::vector<std::string> names = spec.secrets;
  if (!spec.registry.empty()) names.push_back(spec.registry.password);
  std::vector<std::string> missing;
  if (names.empty()) return missing;
  ASSIGN_OR_RETURN(const KeyStore store, OpenKeyStore(context));
  for (const std::string& name : names) {
    if (!store.FindStoredSecret(name, /*session=*/true).ok()) missing.push_back(name);
  }
  return missing;
}

}  // namespace gpuctl
