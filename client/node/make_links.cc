#include "client/node/make_links.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/base/exit_codes.h"
#include "client/cluster/allocation.h"
#include "client/config/cluster_settings.h"
#include "client/config/settings.h"
#include "client/node/allocation_links.h"
#include "client/node/login_links.h"
#include "client/node/rented_links.h"
#include "client/terminal/console.h"
#include "client/terminal/panel_terminal.h"
#include "client/warm/warm_links.h"
#include "common/base/status_macros.h"
#include "provisioning/markets.h"
#include "provisioning/slurm/slurm_provider.h"

namespace gpuctl {

absl::StatusOr<NodePrograms> FindNodePrograms(const std::vector<NodePlatform>& needed) {
  NodePrograms programs = NodePrograms::Find();
  std::vector<NodePlatform> missing;
  for (const NodePlatform platform : needed) {
    if (programs.For(platform) == nullptr) missing.push_back(platform);
  }
  if (missing.empty() && !programs.platforms().empty()) return programs;
  if (missing.empty()) missing = LinuxPlatforms();
  std::string message = absl::StrCat("find the programs for the node: none for ",
                                     PlatformNames(missing), " in ", programs.searched());
  for (const std::string& refused : programs.refused()) absl::StrAppend(&message, "; ", refused);
  return WithExitCode(WithHint(absl::NotFoundError(message), FetchHint(missing)), kExitUsage);
}

namespace {

absl::StatusOr<SshLinkOptions> LinkOptions(CommandContext& context, const NodeTarget& target) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  std::vector<NodePlatform> needed;
  if (target.provider == "local") needed.push_back(OwnPlatform());
  ASSIGN_OR_RETURN(NodePrograms programs, FindNodePrograms(needed));
  SshLinkOptions options;
  options.target = target;
  options.state_dir = paths.state_dir;
  options.programs = std::move(programs);
  options.trace = context.trace;
  options.on_new_host_key = [&context, name = target.name](absl::string_view fingerprint) {
    context.Warn(absl::StrCat("first contact with ", name, ": its host key is ", fingerprint,
                              ", and no other is accepted from now on"));
  };
  // The copy is for a thread that may outlive the context. A panel shows the last line itself, as a
  // part of the error.
  options.on_proxy_line = [console = Console(context)](absl::string_view line) {
    if (!PanelIsShown()) console.Note(line);
  };
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LinkFactory>> MakeLoginLinks(CommandContext& context,
                                                            const NodeTarget& rented,
                                                            const std::string& place) {
  ASSIGN_OR_RETURN(SshLinkOptions options, LinkOptions(context, rented));
  ASSIGN_OR_RETURN(const NodeTarget allocation, TargetOfAllocation(rented));
  options.target = TargetOfArchive(allocation, place);
  return MakeSshLinkFactory(std::move(options));
}

absl::StatusOr<std::unique_ptr<LinkFactory>> MakeLinks(CommandContext& context,
                                                       const NodeTarget& target) {
  if (context.make_links) return context.make_links(target);
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const SshLinkOptions options, LinkOptions(context, target));
  // There is nothing to gain on this computer, and nobody waits for what has no terminal.
  absl::Duration kept = absl::ZeroDuration();
  if (target.provider != "local" && context.keeps_links) {
    ASSIGN_OR_RETURN(kept, ReadWarmLink(paths.config_dir));
  }
  // An allocation is reached by its login node, which never moves.
  std::optional<NodeTarget> allocation;
  if (target.provider == kClusterProvider) {
    ASSIGN_OR_RETURN(allocation, TargetOfAllocation(target));
    kept = absl::ZeroDuration();
  }
  const auto make = [options, kept,
                     allocation](const NodeTarget& at) -> std::unique_ptr<LinkFactory> {
    SshLinkOptions moved = options;
    moved.target = allocation.value_or(at);
    std::unique_ptr<LinkFactory> links = MakeSshLinkFactory(std::move(moved));
    if (kept == absl::ZeroDuration()) return links;
    return MakeWarmLinks({at, options.state_dir, kept}, std::move(links));
  };
  if (!IsRental(target.provider)) return make(target);
  std::unique_ptr<LinkFactory> links = MakeRentedLinks(context, target, make);
  if (!allocation.has_value()) return links;
  ASSIGN_OR_RETURN(const ClusterSettings settings, ReadClusterSettings(paths.config_dir));
  const auto make_kept = [options, allocation, results = settings.options.results](
                             const std::string& label,
                             bool in_queue) -> std::unique_ptr<LinkFactory> {
    if (results.empty()) return nullptr;
    SshLinkOptions login = options;
    const int node = allocation->allocation_node;
    const std::string own = node > 0 ? absl::StrCat(label, "/", ResultsOfNode(node)) : label;
    login.target = TargetOfArchive(*allocation, ResultsWord(results, own));
    login.target.in_queue = in_queue;
    return MakeSshLinkFactory(std::move(login));
  };
  return MakeAllocationLinks(context, target, std::move(links), make_kept);
}

}  // namespace gpuctl
