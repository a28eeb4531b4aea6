#include "client/rent/machine_options.h"

#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/keys/market_access.h"
#include "client/link/new_host_key.h"
#include "client/link/ssh_session.h"
#include "client/rent/lease_limits.h"
#include "client/rent/market_expiry.h"
#include "common/base/status_macros.h"
#include "provisioning/rental/start_script.h"

namespace gpuctl {
namespace {

// Part of the time after which an instance that nobody claimed ends itself, if it can. It is added
// to the time that an instance may take to become ready and reachable.
constexpr absl::Duration kClaimSlack = absl::Minutes(15);

// True when the user wants rented machines to make their own host keys, as where an image ignores
// user data. INVALID_ARGUMENT for any other wish.
absl::StatusOr<bool> MachinesMakeHostKeys() {
  const char* const value = std::getenv("GPUCTL_HOST_KEY");
  const absl::string_view wish = value == nullptr ? "" : value;
  if (wish.empty() || wish == "machine") return wish == "machine";
  return absl::InvalidArgumentError(absl::StrCat("GPUCTL_HOST_KEY is \"", wish,
                                                 "\"; it can only be \"machine\", for machines "
                                                 "that make their host key themselves"));
}

}  // namespace

absl::StatusOr<RentOptions> MachineOptions(CommandContext& context, const Provider& provider,
                                           const Offer& offer, const RentedNodeRequest& request,
                                           const LeaseLimits& limits) {
  const RunSpec& spec = *request.spec;
  RentOptions options;
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(options.ssh_public_key, EnsureKeyPair(paths.own_key(), "gpuctl"));
  ASSIGN_OR_RETURN(const bool machines_make_it, MachinesMakeHostKeys());
  if (provider.traits().takes_host_key && !machines_make_it) {
    ASSIGN_OR_RETURN(NewHostKey host_key, MakeHostKey());
    options.host_key = {std::move(host_key.private_key), std::move(host_key.public_key)};
  }
  options.image = spec.image;
  options.registry_login = request.login;
  options.disk_bytes = spec.disk_bytes;
  options.scheduler = spec.slurm;
  if (request.volume.has_value()) {
    options.volume_id = request.volume->id;
    options.volume_path = request.volume->mount_path;
  }
  if (offer.spot) options.bid_usd_per_hour = offer.price_usd_per_hour;
  const absl::Time now = context.clock.Now();
  if (provider.traits().expiry.at_create) {
    // The run begins when the machine is ready, and has its whole time from then on.
    options.expires_at = ExpiryFor(limits, offer.price_usd_per_hour, now, MostLifetime(spec),
                                   now + provider.traits().waits() + request.ssh_within);
  }
  StartScriptOptions script;
  script.provider = offer.provider;
  ASSIGN_OR_RETURN(script.api_base_url, MarketUrl(offer.provider));
  script.deadline = now + provider.traits().ready_within + request.ssh_within + kClaimSlack;
  ASSIGN_OR_RETURN(options.start_script, MakeStartScript(script));
  return options;
}

}  // namespace gpuctl
