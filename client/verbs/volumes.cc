// gpuctl volumes: list storage that outlives machines and bills by itself.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/keys/market_access.h"
#include "client/market/volumes.h"
#include "client/terminal/console.h"
#include "client/terminal/table.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"

namespace gpuctl {

absl::StatusOr<int> CmdVolumes(CommandContext& context, std::vector<std::string> args) {
  std::vector<std::string> names;
  bool quiet = false;
  VerbParser parser(
      context, "volumes [FLAGS]",
      "Lists the network volumes and file systems of your accounts: where they lie,\n"
      "what they cost a month, with or without a machine. gpuctl launch --volume NAME\n"
      "mounts one; the providers' own pages and tools make and delete them.",
      "  gpuctl volumes\n"
      "  gpuctl launch --volume models run.yaml");
  parser.Option("--provider", names, "Where to look (default: every provider with a key)")
      .Commas()
      .OneValueEach();
  parser.Quiet(quiet, "the ids");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(const std::vector<Market> markets, OpenMarkets(context, names));
  std::vector<Provider*> providers;
  for (const Market& market : markets) providers.push_back(market.provider.get());
  const VolumeList list = ListVolumes(providers);
  int code = kExitOk;
  for (const auto& [market, cause] : list.unknown) {
    const absl::Status explained = ExplainMarketError(cause, market);
    const int one = ExitCodeOf(explained);
    if (code == kExitOk || one == kExitCredentials) code = one;
    if (context.json()) continue;
    context.Warn(absl::StrCat(market, ": UNKNOWN: ", cause.message()));
    if (const std::string hint = HintOf(explained); !hint.empty()) {
      context.Hint(hint);
    }
  }
  if (quiet) {
    for (const Volume& volume : list.volumes) context.PrintLine(volume.id);
    return code;
  }
  if (!context.json()) {
    context.PrintTable(VolumeRows(list.volumes));
    if (list.volumes.empty() && list.unknown.empty()) {
      context.Say("there are no volumes");
    }
    return code;
  }
  std::vector<nlohmann::ordered_json> volumes;
  for (const Volume& volume : list.volumes) volumes.push_back(VolumeToJson(volume));
  if (context.format == OutputFormat::kJsonLines) {
    context.PrintJsonList("volumes", volumes);
  } else {
    context.PrintJson({{"volumes", volumes}, {"unknown", UnknownVolumesToJson(list)}});
  }
  return code;
}

}  // namespace gpuctl
