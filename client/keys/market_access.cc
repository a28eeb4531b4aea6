#include "client/keys/market_access.h"

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/base/simulated_clock.h"
#include "client/base/suggest.h"
#include "client/cluster/ssh_login_node.h"
#include "client/config/cluster_settings.h"
#include "client/keys/key_store.h"
#include "client/terminal/console.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "provisioning/http/curl_http.h"
#include "provisioning/http/keyless_http.h"
#include "provisioning/http/limited_http.h"
#include "provisioning/http/retrying_http.h"
#include "provisioning/http/traced_http.h"
#include "provisioning/markets.h"
#include "provisioning/slurm/slurm_provider.h"

namespace gpuctl {
namespace {

// Returns a short policy: the user waits at the prompt, so a silent market is given up soon.
RetryPolicy InteractivePolicy() {
  RetryPolicy policy;
  policy.total = absl::Seconds(20);
  policy.max_attempts = 4;
  return policy;
}

bool IsLoopback(absl::string_view url) {
  for (const char* host : {"http://127.0.0.1", "http://localhost", "http://[::1]"}) {
    absl::string_view rest = url;
    if (absl::ConsumePrefix(&rest, host) && (rest.empty() || rest[0] == ':' || rest[0] == '/')) {
      return true;
    }
  }
  return false;
}

// Makes the layers, outermost first: retries, then rate limits, then a trace of every sent request.
absl::StatusOr<std::shared_ptr<Http>> MakeMarketHttp(CommandContext& context,
                                                     const MarketFacts& market,
                                                     const std::string& url,
                                                     std::shared_ptr<ClockSkew> skew) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  CurlHttpOptions options;
  options.user_agent = absl::StrCat("gpuctl/", GPUCTL_VERSION);
  options.speed = CommandClockSpeed();
  std::unique_ptr<Http> http = MakeKeylessHttp(MakeCurlHttp(options));
  if (context.trace) {
    http = MakeTracedHttp(std::move(http), context.clock,
                          [&context](absl::string_view line) { context.Trace(line); });
  }
  http = MakeDatedHttp(std::move(http), context.clock, std::move(skew));
  // A service on this machine is a stand-in, to which the provider's limits do not apply. It may
  // also be a proxy of the user's in front of the provider; then GPUCTL_RATE_LIMITS is "on".
  const char* asked = std::getenv("GPUCTL_RATE_LIMITS");
  const bool unlimited = IsLoopback(url) && (asked == nullptr || absl::string_view(asked) != "on");
  const RateLimits limits = unlimited ? RateLimits() : market.limits;
  const std::string file = JoinPath(JoinPath(paths.state_dir, "rates"), market.name);
  http = MakeLimitedHttp(std::move(http),
                         std::make_unique<RateBuckets>(file, limits, context.clock), context.clock);
  return std::shared_ptr<Http>(
      MakeRetryingHttp(std::move(http), context.clock, InteractivePolicy()));
}

absl::Status NoKey(absl::string_view name) {
  return WithExitCode(
      WithHint(absl::UnauthenticatedError(absl::StrCat("there is no key for ", name)),
               absl::StrCat("gpuctl login ", name, ", or export ", MarketVariable(name, "API_KEY"),
                            "=...")),
      kExitCredentials);
}

// Opens the cluster of the user's settings. It rents only where it is named: an allocation takes
// its place in other people's queue.
absl::StatusOr<Market> OpenCluster(CommandContext& context) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(ClusterSettings settings, ReadClusterSettings(paths.config_dir));
  if (settings.host.empty()) {
    return WithExitCode(
        WithHint(absl::UnauthenticatedError("the login node of the Slurm cluster is not known"),
                 "gpuctl config set slurm.host USER@HOST"),
        kExitCredentials);
  }
  ASSIGN_OR_RETURN(std::shared_ptr<LoginNode> login, MakeSshLoginNode(context, settings.host));
  Market market;
  market.name = kClusterProvider;
  market.provider = MakeSlurmProvider(std::move(login), std::move(settings.options), context.clock);
  market.provider->set_key_print(PrintOfKey(absl::StrCat("slurm ", settings.host)));
  market.key_source = settings.host;
  market.borrowed_key = true;
  return market;
}

}  // namespace

absl::Status CheckMarketName(absl::string_view name) {
  if (IsRental(name)) return absl::OkStatus();
  const std::vector<std::string> names = RentalNames();
  return UsageError(absl::StrCat("unknown provider \"", name, "\"", DidYouMean(name, names)),
                    absl::StrCat("these rent machines out: ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<std::string> MarketUrl(absl::string_view name) {
  RETURN_IF_ERROR(CheckMarketName(name));
  const MarketFacts* const market = FindMarket(name);
  if (market == nullptr) return std::string();
  const std::string variable = MarketVariable(name, "URL");
  const char* value = std::getenv(variable.c_str());
  if (value == nullptr || *value == '\0') return market->base_url;
  const std::string url(absl::StripSuffix(value, "/"));
  if (absl::StartsWith(url, "https://") || IsLoopback(url)) return url;
  return UsageError(absl::StrCat("use ", variable,
                                 ": it is neither https nor http on this machine, and a key would "
                                 "travel in the clear"),
                    absl::StrCat("for example ", variable, "=", market->base_url));
}

absl::StatusOr<Market> OpenMarketWithKey(CommandContext& context, absl::string_view name,
                                         const std::string& key) {
  RETURN_IF_ERROR(CheckMarketName(name));
  if (FindMarket(name) == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(name, " takes no key"));
  }
  ASSIGN_OR_RETURN(const std::string url, MarketUrl(name));
  const auto skew = std::make_shared<ClockSkew>();
  ASSIGN_OR_RETURN(std::shared_ptr<Http> http,
                   MakeMarketHttp(context, *FindMarket(name), url, skew));
  ProviderAccess access;
  access.base_url = url;
  access.api_key = key;
  Market market;
  market.name = std::string(name);
  market.skew = skew;
  ASSIGN_OR_RETURN(market.provider, MakeMarket(name, std::move(access), std::move(http)));
  return market;
}

absl::StatusOr<std::vector<Market>> OpenMarkets(CommandContext& context,
                                                const std::vector<std::string>& names) {
  for (const std::string& name : names) RETURN_IF_ERROR(CheckMarketName(name));
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  const KeyStore keys(paths.config_dir);
  std::vector<Market> markets;
  for (const std::string& name : names.empty() ? MarketNames() : names) {
    if (name == kClusterProvider) {
      ASSIGN_OR_RETURN(Market cluster, OpenCluster(context));
      markets.push_back(std::move(cluster));
      continue;
    }
    absl::StatusOr<MarketKey> key = keys.Find(name);
    if (absl::IsNotFound(key.status())) {
      if (names.empty()) continue;
      return NoKey(name);
    }
    RETURN_IF_ERROR(key.status());
    if (names.empty() && key->borrowed) continue;
    ASSIGN_OR_RETURN(Market market, OpenMarketWithKey(context, name, key->key));
    market.key_source = key->source;
    market.borrowed_key = key->borrowed;
    markets.push_back(std::move(market));
  }
  if (!markets.empty()) return markets;
  return WithExitCode(WithHint(absl::UnauthenticatedError("there is no key for any provider"),
                               absl::StrCat("gpuctl login PROVIDER, for example: gpuctl login ",
                                            MarketNames().front())),
                      kExitCredentials);
}

absl::Status ExplainMarketError(const absl::Status& status, absl::string_view market) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return status;
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return WithExitCode(
          WithHint(status, absl::StrCat("gpuctl login ", market, " takes another key")),
          kExitCredentials);
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDeadlineExceeded:
      return WithExitCode(
          WithHint(status, "try again in a minute; --trace shows what was asked and answered"),
          kExitProvider);
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAborted:
      return WithExitCode(status, kExitCapacity);
    case absl::StatusCode::kCancelled:
      return WithExitCode(status, kExitInterrupted);
    case absl::StatusCode::kResourceExhausted:
      return WithExitCode(
          WithHint(status, absl::StrCat("credit and limits are raised on the pages of ", market,
                                        "; another --provider may do meanwhile")),
          kExitProvider);
    case absl::StatusCode::kInternal:
      return status;
    default:  // INVALID_ARGUMENT too: a 400 that possibly no change of the command line can prevent
      return WithExitCode(status, kExitProvider);
  }
}

absl::string_view SshKeysPage(absl::string_view market) {
  const MarketFacts* const facts = FindMarket(market);
  return facts == nullptr ? "" : absl::string_view(facts->ssh_keys_page);
}

std::string AskForSshKey(absl::string_view market, absl::string_view public_key) {
  return absl::StrCat("add gpuctl's public key at ", SshKeysPage(market),
                      " once, because no request can; this line: ", public_key);
}

}  // namespace gpuctl
