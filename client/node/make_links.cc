#include "client/node/make_links.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/base/exit_codes.h"
#include "client/node/rented_links.h"
#include "common/base/status_macros.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

bool IsElf(const std::string& path) {
  char begin[4] = {};
  std::ifstream(path, std::ios::binary).read(begin, sizeof(begin));
  return absl::string_view(begin, sizeof(begin)) == "\177ELF";
}

}  // namespace

absl::StatusOr<BundlePaths> FindNodeBundle(bool for_linux) {
  const BundlePaths bundle = BundlePaths::Find();
  const auto explain = [](const absl::Status& status) {
    return WithExitCode(
        WithHint(Annotate(status, "find the programs for the node"),
                 "install gpuctl with its node bundle, or build it with GPUCTL_BUILD_NODE=ON"),
        kExitFailed);
  };
  if (bundle.agent.empty() || bundle.shim.empty()) {
    return explain(absl::NotFoundError(absl::StrCat(
        "no ", bundle.agent.empty() ? "gpuctl-agent" : "gpuctl-shim", " in ", bundle.searched)));
  }
  for (const std::string& program : {bundle.agent, bundle.shim}) {
    if (!for_linux || IsElf(program)) continue;
    return explain(absl::FailedPreconditionError(absl::StrCat(program, " is not for Linux")));
  }
  return bundle;
}

absl::StatusOr<std::unique_ptr<LinkFactory>> MakeLinks(CommandContext& context,
                                                       const NodeTarget& target) {
  if (context.make_links) return context.make_links(target);
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const BundlePaths bundle, FindNodeBundle(/*for_linux=*/false));
  SshLinkOptions options;
  options.target = target;
  options.state_dir = paths.state_dir;
  options.agent_path = bundle.agent;
  options.shim_path = bundle.shim;
  options.trace = context.trace;
  options.on_new_host_key = [&context, name = target.name](absl::string_view fingerprint) {
    context.Say(absl::StrCat("first contact with ", name, ": its host key is ", fingerprint,
                             ", and no other is accepted from now on"));
  };
  const std::vector<std::string> markets = MarketNames();
  if (std::find(markets.begin(), markets.end(), target.provider) == markets.end()) {
    return MakeSshLinkFactory(std::move(options));
  }
  return MakeRentedLinks(context, target, [options](const NodeTarget& at) {
    SshLinkOptions moved = options;
    moved.target = at;
    return MakeSshLinkFactory(std::move(moved));
  });
}

}  // namespace gpuctl
