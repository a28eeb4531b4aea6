// gpuctl doctor: check everything, name the fix.
#include <poll.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/base/shell_quote.h"
#include "client/config/settings.h"
#include "client/hosts/resolve_target.h"
#include "client/keys/market_access.h"
#include "client/link/local_sshd.h"
#include "client/node/explain_error.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/programs/node_programs.h"
#include "client/self_test/self_test.h"
#include "client/terminal/console.h"
#include "client/trainer/trainer_kit.h"
#include "client/verbs/node_list.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "client/warm/warm_socket.h"
#include "common/base/api_level.h"
#include "common/base/ids.h"
#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

constexpr int64_t kLowDiskBytes = 1'000'000'000;

struct Check {
  std::string name;
  bool ok = false;
  std::string found;
  std::string fix;  // used when not ok
};

Check CheckStateDirectory(CommandContext& context) {
  Check check{"state directory", false, "", ""};
  const absl::StatusOr<ClientPaths> paths = context.Paths();
  if (!paths.ok()) {
    check.found = std::string(paths.status().message());
    check.fix = HintOf(paths.status());
    return check;
  }
  check.found = paths->state_dir;
  const std::string probe = JoinPath(paths->state_dir, absl::StrCat(".doctor-", RandomHex(4)));
  absl::Status status = MakeDirectories(paths->state_dir);
  if (status.ok()) status = WriteFileAtomic(probe, "x");
  if (status.ok()) unlink(probe.c_str());
  if (status.ok()) status = context.Store().status();
  check.ok = status.ok();
  if (!status.ok()) {
    absl::StrAppend(&check.found, ": ", status.message());
    check.fix = "make it writable, or set GPUCTL_STATE_DIR";
  }
  return check;
}

// Tells of the connections that are kept for the next commands. None is no failure.
Check CheckWarmLinks(CommandContext& context) {
  Check check{"warm links", true, "", ""};
  const absl::StatusOr<ClientPaths> paths = context.Paths();
  if (!paths.ok()) {
    check.found = "none: there is no state directory";
    return check;
  }
  const absl::StatusOr<absl::Duration> kept = ReadWarmLink(paths->config_dir);
  if (!kept.ok()) {
    check.ok = false;
    check.found = std::string(kept.status().message());
    check.fix = HintOf(kept.status());
    return check;
  }
  if (*kept == absl::ZeroDuration()) {
    check.found = "off; each command connects by itself";
    return check;
  }
  const std::vector<HolderState> holders = ListHolders(paths->state_dir);
  check.found = absl::StrCat(holders.size(), holders.size() == 1 ? " connection" : " connections",
                             " kept for the next command");
  for (const HolderState& holder : holders) {
    absl::StrAppend(&check.found, "; ", holder.answers ? holder.node : "one does not answer");
  }
  if (const std::string socket = JoinPath(WarmDirectory(paths->state_dir), "012345678901.sock");
      !FitsSocketPath(socket)) {
    check.found = absl::StrCat("none: ", socket, " is too long for a socket; a shorter ",
                               "GPUCTL_STATE_DIR has them");
  }
  return check;
}

Check CheckDisk(CommandContext& context) {
  Check check{"disk for output", false, "", "make room where the state directory lies"};
  const absl::StatusOr<ClientPaths> paths = context.Paths();
  struct statvfs info = {};
  if (!paths.ok() || statvfs(paths->state_dir.c_str(), &info) != 0) {
    check.found = "cannot be asked";
    return check;
  }
  const int64_t free_bytes =
      static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
  check.found = absl::StrCat(FormatBytes(free_bytes), " free");
  check.ok = free_bytes >= kLowDiskBytes;
  return check;
}

Check CheckProgram(const std::string& what, const std::string& path, const std::string& fix) {
  return {what, !path.empty(), path.empty() ? "not found" : path, fix};
}

// Checks that there is a trainer for other machines: sources that are compiled there, or a kit.
Check CheckTrainerKit(const BundlePaths& bundle) {
  Check check{"trainer for other machines", true, "", ""};
  const absl::StatusOr<TrainerKit> kit = FindTrainerKit(bundle);
  const std::string sources = bundle.trainer_sources.empty()
                                  ? ""
                                  : absl::StrCat("compiled there, from ", bundle.trainer_sources);
  if (kit.ok()) {
    check.found =
        absl::StrCat(sources, sources.empty() ? "" : "; else a kit: ", DescribeTrainerKit(*kit),
                     ", from ", kit->shown);
  } else if (!sources.empty()) {
    check.found = absl::StrCat(sources, "; no kit: ", kit.status().message());
  } else if (bundle.trainer.empty() && bundle.trainer_kit.empty()) {
    check.found = "none";
  } else {
    check = {check.name, false, std::string(kit.status().message()), HintOf(kit.status())};
  }
  return check;
}

// Checks the programs for nodes: one line about those that are there, and one for each that is not
// what it should be.
std::vector<Check> CheckNodePrograms() {
  const NodePrograms programs = NodePrograms::Find();
  const std::vector<NodePlatform> missing = MissingPlatforms(programs);
  Check there{"node programs", !programs.platforms().empty(), "", FetchHint(missing)};
  std::vector<Check> checks;
  std::set<std::string> places, versions;
  for (const ListedPrograms& listed : ListNodePrograms(programs)) {
    places.insert(listed.fetched ? DirName(listed.dir) : listed.dir);
    if (const std::string version = DescribeVersion(listed); !version.empty()) {
      versions.insert(version);
    }
    if (listed.match.ok()) continue;
    checks.push_back({there.name, false, std::string(listed.match.message()),
                      listed.fetched ? HintOf(listed.match)
                                     : "install this gpuctl again, or build the client without "
                                       "GPUCTL_NODE_MANIFEST"});
  }
  for (const std::string& refused : programs.refused()) {
    checks.push_back({there.name, false, refused, "put the right one there, or remove it"});
  }
  there.found = there.ok ? PlatformNames(programs.platforms())
                         : absl::StrCat("none in ", programs.searched());
  if (!versions.empty()) absl::StrAppend(&there.found, " (", absl::StrJoin(versions, "; "), ")");
  if (there.ok) absl::StrAppend(&there.found, ", in ", absl::StrJoin(places, " and "));
  if (there.ok && !missing.empty()) {
    absl::StrAppend(&there.found, "; none for ", PlatformNames(missing),
                    " (gpuctl node says what brings them)");
  }
  checks.insert(checks.begin(), there);
  return checks;
}

std::vector<Check> CheckLaptop(CommandContext& context) {
  const BundlePaths bundle = BundlePaths::Find();
  std::vector<Check> checks = {CheckStateDirectory(context), CheckDisk(context),
                               CheckWarmLinks(context)};
  for (Check& check : CheckNodePrograms()) checks.push_back(std::move(check));
  Check trainer = CheckProgram("gpuctl-trainer", bundle.trainer, "");
  // Only runs with `trainer:` need it.
  if (!trainer.ok) trainer = {"gpuctl-trainer", true, "not installed; only trainer: needs it", ""};
  checks.push_back(trainer);
  checks.push_back(CheckTrainerKit(bundle));
  return checks;
}

// Checks one market with the user's key: is the key accepted, and how many offers and instances
// does it list.
Check CheckAccount(CommandContext& context, const MarketFacts& facts) {
  Check check{absl::StrCat("account at ", facts.title), true, "", ""};
  const auto failed = [&check, &facts](const absl::Status& status) {
    check.ok = false;
    absl::StrAppend(&check.found, check.found.empty() ? "" : "; ", status.message());
    check.fix = HintOf(ExplainMarketError(status, facts.name));
    return check;
  };
  absl::StatusOr<std::vector<Market>> markets = OpenMarkets(context, {facts.name});
  // A market without a key is fine: nobody needs an account at every market.
  if (absl::IsUnauthenticated(markets.status())) {
    check.found = absl::StrCat("no key; gpuctl login ", facts.name, " takes one");
    return check;
  }
  if (!markets.ok()) return failed(markets.status());
  if (markets->front().borrowed_key) {
    check.found = absl::StrCat("no key of its own; --provider ", facts.name, " would take that in ",
                               markets->front().key_source);
    return check;
  }
  Provider& provider = *markets->front().provider;
  check.found = absl::StrCat("key in ", markets->front().key_source);
  const absl::StatusOr<std::vector<Instance>> instances = provider.ListInstances();
  if (!instances.ok()) return failed(instances.status());
  const absl::StatusOr<std::vector<Offer>> offers = provider.ListOffers({});
  if (!offers.ok()) return failed(offers.status());
  absl::StrAppend(&check.found, " accepted, ", offers->size(), " offers, ", instances->size(),
                  " instances; not known: the balance");
  const ProviderTraits traits = provider.traits();
  if (traits.expiry.at_create) {
    absl::StrAppend(&check.found, "; it ends machines by itself at the time that a launch sets");
  }
  if (!traits.self_release()) {
    absl::StrAppend(&check.found, "; its machines cannot end their own bill",
                    traits.expiry.at_create ? " before that" : "");
  }
  return check;
}

// Checks all accounts at the same time, so that a market that does not answer delays none of the
// others.
std::vector<Check> CheckAccounts(CommandContext& context) {
  std::vector<Check> checks(AllMarkets().size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < checks.size(); ++i) {
    threads.emplace_back(
        [&checks, &context, i] { checks[i] = CheckAccount(context, AllMarkets()[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  return checks;
}

std::string GpuSummary(const gpuctl::v1::HelloReply& node) {
  if (node.gpus().empty()) return "none (no nvidia-smi there, or no GPU)";
  std::string text;
  for (const gpuctl::v1::Gpu& gpu : node.gpus()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", gpu.name(), " ",
                    FormatBytes(gpu.memory_bytes()));
  }
  return text;
}

// Returns the next step after a failed link. The hint that other verbs print would name doctor
// itself.
std::string FixOfLink(const absl::Status& status, const NodeTarget& target) {
  switch (FaultOf(status)) {
    case LinkFault::kAgentTooOld:
    case LinkFault::kServerStuck:
    case LinkFault::kNoRoomForAgent:
    case LinkFault::kPeerDiskFull:
    case LinkFault::kHostKeyChanged:
      return HintOf(status);
    default:
      break;
  }
  // A usage error names what brings what is missing.
  if (absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status) ||
      absl::IsNotFound(status) || ExitCodeOf(status) == kExitUsage) {
    return HintOf(status);
  }
  if (target.provider == "local") {
    return "node/agent.log in the node's root (~/.gpuctl) and ssh/local/sshd.log in the state "
           "directory may say why";
  }
  const std::string ssh = LoginCommand(target);
  return absl::IsUnavailable(status)
             ? absl::StrCat("is the machine up, and host and port right? Try: ", ssh)
             : absl::StrCat("node/agent.log in ~/.gpuctl there may say why; try: ", ssh);
}

// Returns "Linux aarch64, "; "" where the platform is not known.
std::string SystemOf(LinkFactory& links) {
  const std::optional<NodePlatform> platform = links.platform();
  return platform.has_value() ? absl::StrCat(PlatformTitle(*platform), ", ") : "";
}

// A node with very many files is not counted to the end.
constexpr absl::Duration kCountFor = absl::Seconds(20);
constexpr size_t kMostCounted = 4096;

// Returns what the command prints within that time; nothing when it takes longer or fails.
std::optional<std::string> OutputWithin(CommandContext& context, LinkFactory& links,
                                        const std::string& command, absl::Duration limit) {
  const absl::StatusOr<std::unique_ptr<RemoteCommand>> remote = links.Run(command);
  if (!remote.ok()) return std::nullopt;
  const absl::Duration end = context.clock.SinceBoot() + limit;
  std::string output;
  while (true) {
    pollfd polled = {(*remote)->fd(), POLLIN, 0};
    const absl::Duration left = end - context.clock.SinceBoot();
    if (left <= absl::ZeroDuration()) return std::nullopt;
    const int ready = poll(&polled, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (ready < 0 && errno != EINTR) return std::nullopt;
    if (ready <= 0) continue;
    char bytes[4096];
    const ssize_t count = read(polled.fd, bytes, sizeof(bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return output;
    output.append(bytes, static_cast<size_t>(count));
    if (output.size() > kMostCounted) return std::nullopt;
  }
}

// Says what the node keeps on its disk, and how to free it.
Check CheckKept(CommandContext& context, LinkFactory& links, const std::string& root) {
  Check check{"kept there", true, "", ""};
  // Files that several of them share count once, where they come first.
  const std::optional<std::string> output =
      OutputWithin(context, links,
                   absl::StrCat("cd ", ShellQuote(root),
                                " && type du >/dev/null 2>&1 && { echo counted; "
                                "LC_ALL=C du -sk envs caches trainer blobs jobs 2>/dev/null; }"),
                   kCountFor);
  const std::pair<const char*, const char*> kWords[] = {{"envs", "environments"},
                                                        {"caches", "caches of packages"},
                                                        {"trainer", "compiled trainers"},
                                                        {"blobs", "sent files"},
                                                        {"jobs", "runs"}};
  std::vector<std::string> parts;
  for (const absl::string_view line : absl::StrSplit(output.value_or(""), '\n')) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar("\t "), absl::SkipEmpty());
    int64_t kib = 0;
    if (words.size() != 2 || !absl::SimpleAtoi(words[0], &kib) || kib < 0) continue;
    for (const auto& [directory, word] : kWords) {
      if (words[1] == directory) parts.push_back(absl::StrCat(word, " ", FormatBytes(kib * 1024)));
    }
  }
  if (parts.empty()) {
    check.found = absl::StrContains(output.value_or(""), "counted")
                      ? "nothing"
                      : "not counted: it takes too long, or the program du is not there";
    return check;
  }
  check.found =
      absl::StrCat(absl::StrJoin(parts, ", "), "; gpuctl prune removes finished runs, rm -rf ",
                   ShellQuote(JoinPath(root, "envs")), " ", ShellQuote(JoinPath(root, "caches")),
                   " there frees those while nothing runs");
  return check;
}

void CheckMachine(CommandContext& context, const NodeTarget& target, std::vector<Check>& checks) {
  const auto failed = [&checks, &target](const std::string& what, const absl::Status& status) {
    checks.push_back({what, false, std::string(status.message()), FixOfLink(status, target)});
  };
  if (target.provider == "local") {
    checks.push_back(
        CheckProgram("sshd", FindSshd(), "install it: apt install openssh-server (macOS has it)"));
    if (!checks.back().ok) return;
  }
  const std::string link_name = absl::StrCat("link to ", target.name);
  const absl::StatusOr<std::unique_ptr<LinkFactory>> links = MakeLinks(context, target);
  if (!links.ok()) return failed(link_name, links.status());
  const absl::Duration begin = context.clock.SinceBoot();
  absl::StatusOr<NodeCalls> calls = NodeCalls::Connect(context, **links, target);
  if (!calls.ok()) return failed(link_name, calls.status());
  const absl::StatusOr<gpuctl::v1::HelloReply> node = calls->Hello();
  if (!node.ok()) return failed("agent there", node.status());
  const absl::Duration took = context.clock.SinceBoot() - begin;
  // Hello has already refused an agent that is older than this gpuctl.
  const std::string newer = node->api_level() > kApiLevel
                                ? absl::StrCat(" (newer than this gpuctl: api level ",
                                               node->api_level(), " to ", kApiLevel, "; works)")
                                : "";
  checks.push_back({link_name, true,
                    absl::StrCat("works (", absl::ToInt64Milliseconds(took), " ms), agent ",
                                 node->version(), newer, ", root ", node->root()),
                    ""});
  checks.push_back({"machine", true,
                    absl::StrCat(node->hostname(), ": ", SystemOf(**links), node->cpus(), " CPUs, ",
                                 FormatBytes(node->memory_bytes()), " memory"),
                    ""});
  checks.push_back({"disk there", node->disk_free_bytes() >= kLowDiskBytes,
                    absl::StrCat(FormatBytes(node->disk_free_bytes()), " of ",
                                 FormatBytes(node->disk_total_bytes()), " free"),
                    "make room there"});
  checks.push_back(CheckKept(context, **links, node->root()));
  checks.push_back({"GPUs there", true, GpuSummary(*node), ""});
}

void PrintText(const CommandContext& context, const std::vector<Check>& checks) {
  for (const Check& check : checks) {
    if (context.quiet && check.ok) continue;
    context.PrintLine(absl::StrCat(check.ok ? "ok    " : "FAIL  ", check.name, ": ", check.found));
    if (!check.ok && !check.fix.empty()) context.PrintLine(absl::StrCat("      HINT: ", check.fix));
  }
}

absl::StatusOr<int> SelfTest(CommandContext& context) {
  bool all_ok = true;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  RETURN_IF_ERROR(RunSelfTest(context, [&](const TestCheck& check) {
    all_ok = all_ok && check.ok;
    list.push_back(CheckToJson(check));
    if (context.json()) return;
    PrintText(context,
              {{check.name, check.ok,
                absl::StrCat(check.found, " (", absl::ToInt64Milliseconds(check.took), " ms)"),
                check.fix}});
  }));
  if (context.json()) {
    const nlohmann::ordered_json json = {{"ok", all_ok}, {"checks", list}};
    context.PrintJson(json);
  } else if (all_ok && !context.quiet) {
    context.PrintLine("all is well");
  }
  return all_ok ? kExitOk : kExitFailed;
}

}  // namespace

absl::StatusOr<int> CmdDoctor(CommandContext& context, std::vector<std::string> args) {
  TargetFlags flags;
  VerbParser parser(
      context, "doctor [FLAGS]",
      "Checks this laptop, the accounts that you have a key for, and one machine: that\n"
      "of --host, else this one for local runs. Each failure names its fix.",
      "  gpuctl doctor\n"
      "  gpuctl doctor --host ada@gpu.example\n"
      "  gpuctl doctor --self-test\n\n"
      "--self-test asks no account and no other machine, and needs no run: it shows within\n"
      "a minute what works on this computer, and leaves nothing behind.");
  parser.Option("--host", flags.host, "Machine to check: an ssh alias or USER@HOST[:PORT]");
  parser.Option("-p,--port", flags.port, "Its ssh port").Range(1, 65535);
  parser.Option("-i,--identity", flags.identity, "Private key for it");
  bool self_test = false;
  std::string part, part_dir;
  parser.Switch("--self-test", self_test,
                "Try on this computer what gpuctl relies on: keychain, scheduler, sshd, files,\n"
                "terminal, jobs, clocks");
  // The processes of the self-test.
  const auto hidden_part = parser.Option("--self-test-part", part, "One part of it").Hidden();
  parser.Option("--self-test-dir", part_dir, "Its directory").Hidden();
  parser.Quiet("Print only what fails");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  if (hidden_part.given()) return RunSelfTestPart(context, part, part_dir);
  if (self_test && !(flags.host.empty() && flags.port == 0 && flags.identity.empty())) {
    return UsageError("doctor --self-test is of this computer alone",
                      "gpuctl doctor --host HOST checks a machine");
  }
  if (self_test) return SelfTest(context);
  ASSIGN_OR_RETURN(const NodeTarget target, ResolveTarget(flags));
  std::vector<Check> checks = CheckLaptop(context);
  for (Check& check : CheckAccounts(context)) checks.push_back(std::move(check));
  CheckMachine(context, target, checks);
  bool all_ok = true;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Check& check : checks) {
    all_ok = all_ok && check.ok;
    list.push_back({{"name", check.name}, {"ok", check.ok}, {"found", check.found}});
    if (!check.ok) list.back()["fix"] = check.fix;
  }
  if (context.json()) {
    const nlohmann::ordered_json json = {{"ok", all_ok}, {"checks", list}};
    context.PrintJson(json);
  } else {
    PrintText(context, checks);
    if (all_ok && !context.quiet) context.PrintLine("all is well");
  }
  return all_ok ? kExitOk : kExitFailed;
}

}  // namespace gpuctl
