#include "provisioning/markets.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/files/sha256.h"
#include "common/release/slurm_job.h"
#include "provisioning/digitalocean/digitalocean_provider.h"
#include "provisioning/huggingface/huggingface_provider.h"
#include "provisioning/lambda/lambda_provider.h"
#include "provisioning/runpod/runpod_provider.h"
#include "provisioning/shadeform/shadeform_provider.h"
#include "provisioning/vast/vast_provider.h"

namespace gpuctl {
namespace {

RateLimit Every(absl::Duration interval, absl::Duration penalty = absl::Seconds(5)) {
  return {interval, 1, penalty};
}

// Returns limits of 60 requests in any minute, ten of them at once.
RateLimits RunpodLimits() {
  RateLimits limits;
  limits.all = {absl::Milliseconds(1200), 10, absl::Seconds(5)};
  return limits;
}

// Returns limits of one request a second and one launch in twelve seconds.
RateLimits LambdaLimits() {
  RateLimits limits;
  limits.all = Every(absl::Seconds(1));
  limits.classes["launch"] = Every(absl::Seconds(12), absl::Seconds(12));
  return limits;
}

// Returns limits of 4,800 requests an hour and 100 in a minute; the market takes 5,000 and 250.
RateLimits DigitaloceanLimits() {
  RateLimits limits;
  limits.all = {absl::Milliseconds(750), 20, absl::Seconds(5)};
  return limits;
}

// Returns limits of one request a second, five of them at once; the market publishes none.
RateLimits ShadeformLimits() {
  RateLimits limits;
  limits.all = {absl::Seconds(1), 5, absl::Seconds(5)};
  return limits;
}

// Returns limits of 960 requests in any five minutes, twenty of them at once; the market takes
// 1,000 of a free account.
RateLimits HuggingfaceLimits() {
  RateLimits limits;
  limits.all = {absl::Milliseconds(320), 20, absl::Seconds(5)};
  return limits;
}

// Returns the limits of each endpoint, which has its own least time between requests. After a
// refused create the next one waits longer.
RateLimits VastLimits() {
  RateLimits limits;
  limits.classes["create"] = Every(absl::Milliseconds(4500), absl::Seconds(12));
  limits.classes["destroy"] = Every(absl::Seconds(3));
  limits.classes["show"] = Every(absl::Seconds(2));
  limits.classes["volumes"] = Every(absl::Milliseconds(5500));
  limits.other = Every(absl::Seconds(1));
  return limits;
}

}  // namespace

std::string PrintOfKey(absl::string_view key) {
  return key.empty() ? "" : Sha256HexOf(absl::StrCat("gpuctl key ", key)).substr(0, 16);
}

const std::vector<MarketFacts>& AllMarkets() {
  static const std::vector<MarketFacts>* const markets = new std::vector<MarketFacts>{
      {"runpod", "Runpod", "https://api.runpod.io", "https://console.runpod.io/user/settings",
       RunpodLimits()},
      {"lambda", "Lambda", "https://cloud.lambda.ai", "https://cloud.lambda.ai/api-keys",
       LambdaLimits()},
      {"vast", "Vast.ai", "https://console.vast.ai", "https://console.vast.ai/manage-keys",
       VastLimits()},
      {"digitalocean", "DigitalOcean", "https://api.digitalocean.com",
       "https://cloud.digitalocean.com/account/api/tokens", DigitaloceanLimits()},
      {"shadeform", "Shadeform", "https://api.shadeform.ai",
       "https://platform.shadeform.ai/settings/api", ShadeformLimits()},
      {"huggingface", "Hugging Face", "https://huggingface.co",
       "https://huggingface.co/settings/tokens", HuggingfaceLimits(), "HF_TOKEN",
       "https://huggingface.co/settings/keys"},
  };
  return *markets;
}

std::vector<std::string> MarketNames() {
  std::vector<std::string> names;
  for (const MarketFacts& market : AllMarkets()) names.push_back(market.name);
  return names;
}

const MarketFacts* FindMarket(absl::string_view name) {
  for (const MarketFacts& market : AllMarkets()) {
    if (market.name == name) return &market;
  }
  return nullptr;
}

bool IsRental(absl::string_view provider) {
  return provider == kClusterProvider || FindMarket(provider) != nullptr;
}

bool EndsWithItsRun(absl::string_view provider, absl::string_view instance_id) {
  const std::optional<SlurmJob> job = ParseSlurmJob(instance_id);
  return provider == kClusterProvider && job.has_value() && job->is_task();
}

std::vector<std::string> RentalNames() {
  std::vector<std::string> names = MarketNames();
  names.emplace_back(kClusterProvider);
  return names;
}

absl::StatusOr<std::unique_ptr<Provider>> MakeMarket(absl::string_view name, ProviderAccess access,
                                                     std::shared_ptr<Http> http) {
  const std::string print = PrintOfKey(access.api_key);
  std::unique_ptr<Provider> provider;
  if (name == "runpod") {
    provider = MakeRunpodProvider(std::move(http), std::move(access));
  } else if (name == "lambda") {
    provider = MakeLambdaProvider(std::move(http), std::move(access));
  } else if (name == "vast") {
    provider = MakeVastProvider(std::move(http), std::move(access));
  } else if (name == "digitalocean") {
    provider = MakeDigitaloceanProvider(std::move(http), std::move(access));
  } else if (name == "shadeform") {
    provider = MakeShadeformProvider(std::move(http), std::move(access));
  } else if (name == "huggingface") {
    provider = MakeHuggingfaceProvider(std::move(http), std::move(access));
  } else {
    return absl::InvalidArgumentError(absl::StrCat("there is no market \"", name, "\""));
  }
  provider->set_key_print(print);
  return provider;
}

}  // namespace gpuctl
