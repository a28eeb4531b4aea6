#include "client/cluster/allocation.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/base/allocation_step.h"
#include "client/hosts/resolve_target.h"
#include "common/base/status_macros.h"

namespace gpuctl {

absl::StatusOr<NodeTarget> TargetOfAllocation(const NodeTarget& rented) {
  absl::string_view job = rented.name;
  if (!absl::ConsumePrefix(&job, "slurm/") || !IsAllocation(job)) {
    return absl::InvalidArgumentError(absl::StrCat(rented.name, " is no allocation"));
  }
  TargetFlags flags;
  flags.host = rented.user.empty() ? rented.host : absl::StrCat(rented.user, "@", rented.host);
  flags.port = rented.port;
  if (rented.host == "local") flags = {};
  ASSIGN_OR_RETURN(NodeTarget target, ResolveTarget(flags));
  target.allocation = std::string(job);
  target.root = kHeldRoot;
  return target;
}

NodeTarget TargetOfArchive(const NodeTarget& allocation, const std::string& archive) {
  NodeTarget target = allocation;
  target.allocation.clear();
  // Its programs lie where those of any machine lie that the user names.
  target.root.clear();
  target.archive = archive;
  return target;
}

}  // namespace gpuctl
