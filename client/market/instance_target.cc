#include "client/market/instance_target.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/base/allocation_step.h"
#include "client/base/known_hosts.h"
#include "client/base/paths.h"
#include "common/base/status_macros.h"
#include "provisioning/markets.h"

namespace gpuctl {

std::string RentedNodeName(absl::string_view provider, absl::string_view instance_id) {
  return absl::StrCat(provider, "/", instance_id);
}

std::string GivenHostKey(const Lease& lease) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(lease.host_key, ' ', absl::SkipEmpty());
  return words.size() < 2 ? "" : KeyFingerprint(words[1]);
}

absl::StatusOr<NodeTarget> TargetOfInstance(CommandContext& context, const Lease& lease,
                                            const SshAddress& address) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  NodeTarget target;
  target.provider = lease.provider;
  target.name = RentedNodeName(lease.provider, lease.instance_id);
  target.given_host_key = GivenHostKey(lease);
  target.host = address.host;
  target.port = address.port;
  target.user = address.user;
  target.identity_files = {paths.own_key()};
  if (lease.provider == kClusterProvider) target.root = kHeldRoot;
  return target;
}

}  // namespace gpuctl
