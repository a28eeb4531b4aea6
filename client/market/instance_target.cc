#include "client/market/instance_target.h"

#include "absl/strings/str_cat.h"
#include "client/base/paths.h"
#include "common/base/status_macros.h"

namespace gpuctl {

std::string RentedNodeName(absl::string_view provider, absl::string_view instance_id) {
  return absl::StrCat(provider, "/", instance_id);
}

absl::StatusOr<NodeTarget> TargetOfInstance(CommandContext& context, absl::string_view provider,
                                            absl::string_view instance_id,
                                            const SshAddress& address) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  NodeTarget target;
  target.provider = std::string(provider);
  target.name = RentedNodeName(provider, instance_id);
  target.host = address.host;
  target.port = address.port;
  target.user = address.user;
  target.identity_files = {paths.own_key()};
  return target;
}

}  // namespace gpuctl
