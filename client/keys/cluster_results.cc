#include "client/keys/cluster_results.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cluster/ssh_login_node.h"
#include "client/config/cluster_settings.h"
#include "common/base/status_macros.h"

namespace gpuctl {

absl::StatusOr<std::unique_ptr<ClusterResults>> ClusterResults::Open(CommandContext& context,
                                                                     const std::string& host) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(ClusterSettings settings, ReadClusterSettings(paths.config_dir));
  const std::string& named = host.empty() ? settings.host : host;
  if (named.empty() || settings.options.results.empty()) return nullptr;
  ASSIGN_OR_RETURN(std::shared_ptr<LoginNode> login, MakeSshLoginNode(context, named));
  return std::unique_ptr<ClusterResults>(
      new ClusterResults(named, std::move(login), std::move(settings.options.results)));
}

absl::StatusOr<std::unique_ptr<ClusterResults>> ClusterResults::OfSettings(
    CommandContext& context) {
  return Open(context, "");
}

absl::StatusOr<std::unique_ptr<ClusterResults>> ClusterResults::OfAllocation(
    CommandContext& context, const NodeTarget& allocation) {
  const bool brackets = absl::StrContains(allocation.host, ':');
  std::string host =
      brackets ? absl::StrCat("[", allocation.host, "]") : std::string(allocation.host);
  if (!allocation.user.empty()) host = absl::StrCat(allocation.user, "@", host);
  if (allocation.port > 0) absl::StrAppend(&host, ":", allocation.port);
  return Open(context, host);
}

}  // namespace gpuctl
