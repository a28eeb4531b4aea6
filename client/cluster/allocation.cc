#include "client/cluster/allocation.h"

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/base/allocation_step.h"
#include "client/hosts/resolve_target.h"
#include "common/base/status_macros.h"

namespace gpuctl {

std::optional<AllocationName> ParseAllocationName(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, "slurm/")) return std::nullopt;
  const std::vector<absl::string_view> parts = absl::StrSplit(name, absl::MaxSplits('.', 1));
  AllocationName found{std::string(parts[0])};
  if (!IsAllocation(found.job)) return std::nullopt;
  if (parts.size() == 2 && (!absl::SimpleAtoi(parts[1], &found.node) || found.node < 1)) {
    return std::nullopt;
  }
  return found;
}

std::string InstanceIdOf(const NodeTarget& rented) {
  const std::optional<AllocationName> allocation = ParseAllocationName(rented.name);
  if (allocation.has_value()) return allocation->job;
  return std::string(absl::StripPrefix(rented.name, absl::StrCat(rented.provider, "/")));
}

NodeTarget NodeOfAllocation(const NodeTarget& first, int node) {
  NodeTarget target = first;
  if (node > 0) absl::StrAppend(&target.name, ".", node);
  return target;
}

absl::StatusOr<NodeTarget> TargetOfAllocation(const NodeTarget& rented) {
  const std::optional<AllocationName> name = ParseAllocationName(rented.name);
  if (!name.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(rented.name, " is no allocation"));
  }
  TargetFlags flags;
  flags.host = rented.user.empty() ? rented.host : absl::StrCat(rented.user, "@", rented.host);
  flags.port = rented.port;
  if (rented.host == "local") flags = {};
  ASSIGN_OR_RETURN(NodeTarget target, ResolveTarget(flags));
  target.allocation = name->job;
  target.allocation_node = name->node;
  target.root = kHeldRoot;
  return target;
}

NodeTarget TargetOfArchive(const NodeTarget& allocation, const std::string& archive) {
  NodeTarget target = allocation;
  target.allocation.clear();
  target.allocation_node = 0;
  // Its programs lie where those of any machine lie that the user names.
  target.root.clear();
  target.archive = archive;
  return target;
}

}  // namespace gpuctl
