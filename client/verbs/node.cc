// gpuctl node: lists the programs for nodes that this laptop has; node fetch brings more.
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/base/suggest.h"
#include "client/programs/node_programs.h"
#include "client/terminal/console.h"
#include "client/terminal/table.h"
#include "client/verbs/node_fetch.h"
#include "client/verbs/node_list.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "provisioning/http/curl_http.h"

namespace gpuctl {
namespace {

using Json = nlohmann::ordered_json;

std::string Matches(const ListedPrograms& listed) {
  if (!listed.has_manifest) return "own build";
  return listed.match.ok() ? "yes" : "no";
}

Json RowJson(const ListedPrograms& listed) {
  Json json = {{"platform", PlatformName(listed.platform)},
               {"version", nullptr},
               {"api_level", nullptr},
               {"bytes", listed.bytes},
               {"dir", listed.dir},
               {"fetched", listed.fetched},
               {"cuda_check", listed.has_cuda_check},
               {"matches_manifest", nullptr}};
  if (!listed.version.empty()) json["version"] = listed.version;
  if (listed.api_level.has_value()) json["api_level"] = *listed.api_level;
  if (listed.has_manifest) json["matches_manifest"] = listed.match.ok();
  return json;
}

Json NamesJson(const std::vector<NodePlatform>& platforms) {
  Json names = Json::array();
  for (const NodePlatform platform : platforms) names.push_back(PlatformName(platform));
  return names;
}

void PrintTables(const CommandContext& context, const NodePrograms& programs,
                 const std::vector<ListedPrograms>& list) {
  std::vector<TableRow> rows = {{"PLATFORM", "VERSION", "API", "SIZE", "OF RELEASE", "FROM"}};
  for (const ListedPrograms& listed : list) {
    rows.push_back({PlatformName(listed.platform), listed.version.empty() ? "-" : listed.version,
                    listed.api_level.has_value() ? absl::StrCat(*listed.api_level) : "-",
                    FormatBytes(listed.bytes), Matches(listed), listed.dir});
  }
  if (!list.empty()) context.PrintTable(rows);
  for (const ListedPrograms& listed : list) {
    if (listed.match.ok()) continue;
    context.Warn(listed.match.message());
    if (listed.fetched) context.Hint(HintOf(listed.match));
  }
  for (const std::string& refused : programs.refused()) context.Warn(refused);
  const std::vector<NodePlatform> missing = MissingPlatforms(programs);
  if (missing.empty()) return;
  context.Say(absl::StrCat("there are no programs for ", PlatformNames(missing)));
  context.Hint(FetchHint(missing));
}

int List(const CommandContext& context, bool quiet) {
  const NodePrograms programs = NodePrograms::Find();
  const std::vector<ListedPrograms> list = ListNodePrograms(programs);
  if (quiet) {
    for (const ListedPrograms& listed : list) context.PrintLine(PlatformName(listed.platform));
    return kExitOk;
  }
  if (!context.json()) {
    PrintTables(context, programs, list);
    return kExitOk;
  }
  std::vector<Json> rows;
  for (const ListedPrograms& listed : list) rows.push_back(RowJson(listed));
  if (context.format == OutputFormat::kJsonLines) {
    context.PrintJsonList("programs", rows);
  } else {
    context.PrintJson({{"programs", rows},
                       {"missing", NamesJson(MissingPlatforms(programs))},
                       {"refused", programs.refused()}});
  }
  return kExitOk;
}

// True when `from` names one archive, not a place with those of all platforms.
bool IsOneArchive(const std::string& from) {
  return !from.empty() && !absl::EndsWith(from, "/") && !IsDirectory(from);
}

// Returns the platforms to fetch: those named, else those that are missing or not as they should
// be.
absl::StatusOr<std::vector<NodePlatform>> PlatformsToFetch(const std::vector<std::string>& names) {
  std::vector<NodePlatform> platforms;
  for (const std::string& name : names) {
    const absl::StatusOr<NodePlatform> platform = PlatformOfName(name);
    if (!platform.ok() || *platform == NodePlatform::kMacArm64) {
      std::vector<std::string> known;
      for (const NodePlatform one : LinuxPlatforms()) known.emplace_back(PlatformName(one));
      return UsageError(absl::StrCat("node fetch: there is no archive for \"", name, "\"",
                                     DidYouMean(name, known)),
                        absl::StrCat("there are ", PlatformNames(LinuxPlatforms())));
    }
    platforms.push_back(*platform);
  }
  if (!names.empty()) return platforms;
  const NodePrograms programs = NodePrograms::Find();
  platforms = MissingPlatforms(programs);
  for (const ListedPrograms& listed : ListNodePrograms(programs)) {
    if (listed.fetched && !listed.match.ok()) platforms.push_back(listed.platform);
  }
  return platforms;
}

absl::StatusOr<int> Fetch(CommandContext& context, const std::vector<std::string>& names,
                          const std::string& from) {
  FetchOptions options;
  options.from = from;
  options.into = FetchedProgramsDir();
  options.manifest = BuiltInManifest();
  options.version = ClientVersion();
  options.http = [] {
    CurlHttpOptions curl;
    curl.user_agent = absl::StrCat("gpuctl/", ClientVersion());
    curl.max_reply_bytes = kMostArchiveBytes;
    return MakeCurlHttp(std::move(curl));
  };
  RETURN_IF_ERROR(context.Paths().status());
  ASSIGN_OR_RETURN(const std::vector<NodePlatform> platforms, PlatformsToFetch(names));
  if (platforms.size() > 1 && IsOneArchive(from)) {
    return UsageError("node fetch: an archive has the programs of one platform",
                      absl::StrCat("gpuctl node fetch PLATFORM --from ARCHIVE; PLATFORM is ",
                                   PlatformNames(LinuxPlatforms())));
  }
  Json list = Json::array();
  for (const NodePlatform platform : platforms) {
    ASSIGN_OR_RETURN(const Fetched fetched, FetchNodePrograms(options, platform));
    list.push_back({{"platform", PlatformName(platform)},
                    {"from", fetched.from},
                    {"bytes", fetched.bytes},
                    {"dir", fetched.dir},
                    {"verified", fetched.verified}});
    context.Say(
        absl::StrCat(PlatformName(platform), ": ", FormatBytes(fetched.bytes), " from ",
                     fetched.from, ", in ", fetched.dir, ", ",
                     fetched.verified ? "verified" : "not verified: this gpuctl is an own build"));
  }
  if (context.json()) {
    context.PrintJson({{"fetched", list}});
  } else if (platforms.empty()) {
    context.Say("there are programs for every platform");
  }
  return kExitOk;
}

}  // namespace

absl::StatusOr<int> CmdNode(CommandContext& context, std::vector<std::string> args) {
  std::string what, from;
  bool quiet = false;
  std::vector<std::string> names;
  VerbParser parser(
      context, "node [fetch [PLATFORM...] [--from ARCHIVE]] [FLAGS]",
      "Lists the programs that gpuctl sends to machines: for each system and processor\n"
      "their version, size and folder, and whether they are those of this release.\n"
      "gpuctl node fetch brings the programs for a PLATFORM (linux-x86_64,\n"
      "linux-aarch64; default: those that are missing), and compares them with the\n"
      "digests that this gpuctl was built with.",
      "  gpuctl node\n"
      "  gpuctl node fetch linux-aarch64\n"
      "  gpuctl node fetch linux-aarch64 --from gpuctl-node-0.1.0-linux-aarch64.tar.zst");
  parser.Option("WHAT", what, "fetch; default: list");
  parser.Option("PLATFORM", names, "Platforms to fetch");
  parser.Option("--from", from, "Archive: a file, a folder, or an address (https)");
  parser.Quiet(quiet, "the platforms");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  if (what == "fetch") return Fetch(context, names, from);
  if (!what.empty()) {
    return UsageError(
        absl::StrCat("node: unknown command \"", what, "\"", DidYouMean(what, {"fetch"})),
        "gpuctl node, or gpuctl node fetch");
  }
  if (!from.empty()) {
    return UsageError("node: --from goes with fetch", "gpuctl node fetch --from ARCHIVE");
  }
  return List(context, quiet);
}

}  // namespace gpuctl
