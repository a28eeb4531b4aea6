#include "client/node/shared_store.h"

#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/base/allocation_step.h"
#include "client/cluster/allocation.h"
#include "client/config/cluster_settings.h"
#include "client/market/holdings.h"
#include "client/node/login_links.h"
#include "common/base/status_macros.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/markets.h"
#include "provisioning/slurm/slurm_provider.h"

namespace gpuctl {
namespace {

// Runs a command on the node to its end. Returns its exit code; its stderr goes to `words`.
absl::StatusOr<int> RunOnNode(LinkFactory& node, const std::string& command, std::string& words) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RemoteCommand> run, node.Run(command));
  char buffer[4096];
  for (ssize_t got = 1; got != 0;) {
    got = read(run->fd(), buffer, sizeof(buffer));
    if (got < 0 && errno != EINTR) break;
  }
  ASSIGN_OR_RETURN(const int code, run->Wait());
  words = std::string(absl::StripAsciiWhitespace(run->Stderr()));
  return code;
}

// Returns the label of the machine's lease; "" when the ledger does not know it.
std::string LabelOf(CommandContext& context, const NodeTarget& target) {
  Holdings holdings(context);
  const absl::StatusOr<Ledger*> ledger = holdings.FindLedger();
  if (!ledger.ok() || *ledger == nullptr) return "";
  const absl::StatusOr<std::vector<Lease>> open = (*ledger)->List(/*open_only=*/true);
  if (!open.ok()) return "";
  const std::string instance = InstanceIdOf(target);
  for (const Lease& lease : *open) {
    if (lease.provider == target.provider && lease.instance_id == instance) return lease.label;
  }
  return "";
}

}  // namespace

std::unique_ptr<SharedStore> SharedStore::Find(CommandContext& context, const NodeTarget& target,
                                               LinkFactory& node) {
  if (target.provider != kClusterProvider) return nullptr;
  const absl::StatusOr<ClientPaths> paths = context.Paths();
  if (!paths.ok()) return nullptr;
  const absl::StatusOr<ClusterSettings> settings = ReadClusterSettings(paths->config_dir);
  const std::string label = LabelOf(context, target);
  if (!settings.ok() || settings->options.results.empty() || label.empty()) return nullptr;
  // The label is this lease's alone, so a file there was made on the login node.
  const std::string& results = settings->options.results;
  std::string words;
  const absl::StatusOr<int> seen = RunOnNode(
      node, absl::StrCat("test -f ", ResultsWord(results, absl::StrCat(label, "/token"))), words);
  if (!seen.ok() || *seen != 0) return nullptr;
  const std::string place = ResultsWord(results, absl::StrCat(label, "/store"));
  absl::StatusOr<std::unique_ptr<LinkFactory>> links = MakeLoginLinks(context, target, place);
  if (!links.ok()) return nullptr;
  return std::unique_ptr<SharedStore>(new SharedStore(*std::move(links), node, place));
}

absl::Status SharedStore::Give(const std::string& digest, bool keep) {
  std::string words;
  ASSIGN_OR_RETURN(
      const int code,
      RunOnNode(node_,
                absl::StrCat("r=$", kHeldRootVariable,
                             "; exec \"$r/bin/current/gpuctl-agent\" take --root \"$r\" --from ",
                             place_, " --tree ", digest, keep ? " --keep" : ""),
                words));
  if (code == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("the node did not take it: exit ", code, ": ", words));
}

}  // namespace gpuctl
