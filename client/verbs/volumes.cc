// gpuctl volumes: what outlives machines and bills by itself.
#include "client/market/volumes.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/market/market_access.h"
#include "client/terminal/console.h"
#include "client/terminal/table.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"

namespace gpuctl {

absl::StatusOr<int> CmdVolumes(CommandContext& context, std::vector<std::string> args) {
  std::vector<std::string> names;
  VerbParser parser(
      context, "volumes [FLAGS]",
      "Lists the network volumes and file systems of your accounts: where they lie,\n"
      "what they cost a month, with or without a machine. gpuctl launch --volume NAME\n"
      "mounts one; the providers' own pages and tools make and delete them.");
  parser.app()
      .add_option("--provider", names, "Whose (default: every provider with a key)")
      ->delimiter(',')
      ->allow_extra_args(false);
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(std::move(args)));
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
    PrintProgress(context, absl::StrCat("gpuctl: ", market, ": UNKNOWN: ", cause.message()));
    if (const std::string hint = HintOf(explained); !hint.empty()) {
      PrintProgress(context, absl::StrCat("HINT: ", hint));
    }
  }
  if (!context.json()) {
    PrintOut(FormatTable(VolumeRows(list.volumes)));
    if (list.volumes.empty() && list.unknown.empty()) {
      PrintProgress(context, "gpuctl: there are no volumes");
    }
    return code;
  }
  std::vector<std::string> volumes;
  for (const Volume& volume : list.volumes) volumes.push_back(VolumeToJson(volume));
  if (context.format == OutputFormat::kJsonLines) {
    PrintJsonList(context, "volumes", volumes);
  } else {
    PrintOut(absl::StrCat(
        WithSchemaVersion(absl::StrCat("{\"volumes\":[", absl::StrJoin(volumes, ","),
                                       "],\"unknown\":", UnknownVolumesToJson(list), "}")),
        "\n"));
  }
  return code;
}

}  // namespace gpuctl
