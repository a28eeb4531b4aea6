#include "client/plan/launch_plan.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/base/paths.h"
#include "client/base/quantity.h"
#include "client/base/shell_quote.h"
#include "client/base/suggest.h"
#include "client/bill/lease_view.h"
#include "client/hosts/resolve_target.h"
#include "client/keys/ask_markets.h"
#include "client/market/instance_target.h"
#include "client/market/price_limit.h"
#include "client/market/secret_values.h"
#include "client/market/volumes.h"
#include "client/node/make_links.h"
#include "client/rent/claim_node.h"
#include "client/rent/lease_limits.h"
#include "client/rent/reuse_node.h"
#include "client/results/pull_files.h"
#include "client/spec/job_spec.h"
#include "client/spec/launch_record.h"
#include "client/terminal/console.h"
#include "client/workdir/git_source.h"
#include "client/workdir/named_results.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/job/job_layout.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

// True when the plan rents a machine. Then puts the markets into `plan`.
absl::StatusOr<bool> PlansToRent(CommandContext& context, const Holdings& holdings,
                                 const LaunchFlags& flags, LaunchPlan& plan) {
  const RunSpec& spec = plan.spec;
  if (!flags.target.host.empty()) return false;
  const bool own = !spec.providers.empty() && !NamesMarket(spec);
  if (own) return false;
  absl::StatusOr<std::vector<Market>> markets = holdings.Open(spec.providers);
  if (markets.ok()) {
    plan.rental.markets = *std::move(markets);
    RETURN_IF_ERROR(plan.settings.Apply(/*rented=*/true, plan.spec));
    ASSIGN_OR_RETURN(plan.login, ReadRegistryLogin(context, spec));
    ASSIGN_OR_RETURN(plan.rental.left_out, LeaveOutForImage(spec, plan.login, plan.rental.markets));
    return true;
  }
  // A user without a key who asks for nothing that only a market has does not mean to rent.
  const bool asks = NamesMarket(spec) || !CheckNothingRented(spec).ok();
  if (!asks && absl::IsUnauthenticated(markets.status())) return false;
  return markets.status();
}

// Finds the idle machine of ours that the run would take, within the price of the plan.
absl::Status FindIdle(CommandContext& context, Holdings& holdings, LaunchPlan& plan) {
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.FindLedger());
  if (ledger == nullptr) return absl::OkStatus();
  RentedNodeRequest request;
  request.spec = &plan.spec;
  request.volume = plan.volume;
  request.agreed_usd_per_hour = plan.rental.own_limit_usd_per_hour;
  if (const int machines = MachinesToRent(plan); machines > 1) {
    const RunSpec one = SpecOfOne(plan.spec, machines);
    request.spec = &one;
    ASSIGN_OR_RETURN(const std::vector<IdleMachine> idle,
                     FindIdleTogether(context, *ledger, plan.rental.markets, request,
                                      static_cast<size_t>(machines)));
    for (const IdleMachine& machine : idle) {
      if (plan.rental.idle.has_value()) plan.rental.more_idle.push_back(machine.lease);
      if (!plan.rental.idle.has_value()) plan.rental.idle = machine.lease;
      plan.rental.others_wait = plan.rental.others_wait || machine.others_wait;
      if (machine.others_wait) plan.rental.waits_on.push_back(machine.lease);
    }
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::optional<IdleMachine> idle,
                   FindIdleNode(context, *ledger, plan.rental.markets, request));
  if (!idle.has_value()) return absl::OkStatus();
  plan.rental.idle = idle->lease;
  plan.rental.others_wait = idle->others_wait;
  if (idle->others_wait) plan.rental.waits_on = {idle->lease};
  return absl::OkStatus();
}

// Returns the places that had a bad machine lately.
absl::StatusOr<std::vector<std::string>> BadPlaces(Holdings& holdings) {
  std::vector<std::string> bad;
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.FindLedger());
  if (ledger == nullptr) return bad;
  ASSIGN_OR_RETURN(const std::vector<ExcludedPlace> places, ledger->Excluded());
  for (const ExcludedPlace& place : places) bad.push_back(place.place);
  return bad;
}

// Takes out machines with another processor than that of the trainer's kit, when only that is sent.
void ServeOnlyKit(const TrainerWays& trainer, Requirements& requirements) {
  if (trainer.may_build() || !trainer.kit_platform.has_value()) return;
  const NodePlatform platform = *trainer.kit_platform;
  const Requirements::Unserved lack{
      absl::StrCat("its processor is not that of the trainer that is sent (",
                   PlatformName(platform), ")"),
      "use trainer.build: node, or run: with a script of your own on such a machine"};
  if (platform != NodePlatform::kLinuxX86_64) requirements.x86_64 = lack;
  if (platform != NodePlatform::kLinuxAarch64) requirements.arm64 = lack;
}

// Leaves out the offers that a cost which the user named does not pay for. When nothing is left,
// that is why nothing is offered.
void LeaveOutUnpaid(LaunchPlan& plan) {
  if (!plan.spec.cost_limit_usd.has_value() || plan.rental.in_order.empty()) return;
  absl::Status pays;
  std::vector<Offer> paid;
  for (const Offer& offer : plan.rental.in_order) {
    const absl::Status one =
        LimitsWithin(plan.spec, offer.price_usd_per_hour * MachinesToRent(plan), 0).status();
    if (one.ok()) paid.push_back(offer);
    if (pays.ok()) pays = one;
  }
  if (paid.empty()) {
    plan.rental.nothing_offered =
        UsageError(absl::StrCat("--cost: ", pays.message()), "gpuctl offers shows what costs less");
  }
  plan.rental.in_order = std::move(paid);
}

// Puts the offers into the order in which they are tried, without those that are too dear.
absl::Status ChooseOffers(Holdings& holdings, const Requirements& requirements, LaunchPlan& plan) {
  RentalPlan& rental = plan.rental;
  ASSIGN_OR_RETURN(const std::vector<std::string> bad, BadPlaces(holdings));
  rental.in_order = InOrderOfChoice(rental.offers, requirements, bad);
  if (rental.in_order.empty()) {
    // Renting says which places are left out, and why.
    rental.in_order = InOrderOfChoice(rental.offers, requirements, {});
  }
  LeaveOutUnpaid(plan);
  if (plan.spec.max_price_usd_per_hour.has_value() || rental.in_order.empty()) {
    return absl::OkStatus();
  }
  rental.own_limit_usd_per_hour = OwnPriceLimit(rental.in_order.front().price_usd_per_hour);
  rental.next_dearer = LeaveOutDearer(*rental.own_limit_usd_per_hour, rental.in_order);
  return absl::OkStatus();
}

// Returns what a lease knows of its offer.
Offer OfferOf(const Lease& lease) {
  Offer offer;
  offer.provider = lease.provider;
  offer.description = FormatGpus(lease.gpu_name, lease.gpu_count);
  offer.gpu_name = lease.gpu_name;
  offer.gpu_count = lease.gpu_count;
  offer.region = lease.region;
  offer.place = lease.place;
  offer.price_usd_per_hour = lease.price_usd_per_hour;
  return offer;
}

absl::Status FindOffers(CommandContext& context, Holdings& holdings, const LaunchFlags& flags,
                        LaunchPlan& plan) {
  if (const absl::Status share = CheckShareOfRented(plan.spec); !share.ok()) {
    return UsageError(share.message(), "add --gpu MODEL:COUNT, or --on RUN for one that is there");
  }
  if (flags.rented != nullptr) {
    plan.rental.in_order = {OfferOf(flags.rented->lease)};
    plan.rental.own_limit_usd_per_hour = OwnPriceLimit(flags.rented->lease.price_usd_per_hour);
    return absl::OkStatus();
  }
  std::vector<Provider*> providers;
  for (const Market& market : plan.rental.markets) providers.push_back(market.provider.get());
  Requirements requirements = RequirementsOf(plan.spec);
  ServeOnly(NodePrograms::Find(), requirements);
  if (plan.trainer.has_value()) ServeOnlyKit(*plan.trainer, requirements);
  requirements.needed_for = MostLifetime(plan.spec);
  if (!plan.spec.volume.name.empty()) {
    ASSIGN_OR_RETURN(plan.volume, FindVolume(providers, plan.spec.volume));
    requirements.volume = plan.volume;
    (*plan.job.mutable_env())["GPUCTL_VOLUME"] = plan.volume->mount_path;
  }
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  RETURN_IF_ERROR(CheckMarketPatience());
  plan.rental.offers =
      AskMarkets(plan.rental.markets, requirements, /*explain=*/false, AnswerTimesPath(paths));
  LeaveOutMarketsOfOtherTimes(plan.rental.markets, plan.rental.offers);
  plan.rental.nothing_offered = CheckPlan(plan.rental.offers, requirements);
  if (plan.rental.nothing_offered.ok()) {
    RETURN_IF_ERROR(ChooseOffers(holdings, requirements, plan));
  } else if (!absl::IsNotFound(plan.rental.nothing_offered)) {
    return plan.rental.nothing_offered;
  }
  if (!flags.fresh) {
    RETURN_IF_ERROR(FindIdle(context, holdings, plan));
  }
  if (!plan.rental.has_machine()) {
    const bool none_now = ExitCodeOf(plan.rental.nothing_offered) == kExitCapacity;
    return flags.later && none_now ? absl::OkStatus() : plan.rental.nothing_offered;
  }
  if (!plan.spec.max_price_usd_per_hour.has_value() && plan.rental.in_order.empty()) {
    plan.rental.own_limit_usd_per_hour = OwnPriceLimit(PriceOf(plan) / MachinesToRent(plan));
  }
  return absl::OkStatus();
}

// The path in the work directory where a resumed run finds its checkpoint.
constexpr char kResumePath[] = ".gpuctl-resume";
constexpr char kResumeFrom[] = "GPUCTL_RESUME_FROM";

// Returns what the job finds in that variable, below its work directory.
std::string ResumeWord(const StartPoint& resume) {
  return resume.is_file ? JoinPath(kResumePath, BaseName(resume.path)) : kResumePath;
}

absl::StatusOr<DataTree> ScanCheckpointTree(CommandContext& context, const StartPoint& resume) {
  if (!resume.is_file) return ScanDataTree(context, resume.path, kResumePath);
  return ScanDataFile(resume.path, kResumePath);
}

// Returns an error when only the trainer's kit can be used, and `place` would leave its GPUs idle.
absl::Status CheckKitUsesGpus(const LaunchPlan& plan, absl::string_view place) {
  if (plan.trainer->may_build() || !plan.trainer->kit.has_value()) return absl::OkStatus();
  return CheckTrainerUsesGpus(*plan.trainer->kit, plan.spec.trainer_json, place);
}

// True for a run that uses no machine but this one.
bool IsOnlyHere(const LaunchPlan& plan) {
  return !plan.rents && plan.own_machine.provider == "local" && plan.other_machines.empty();
}

absl::Status PlanTrainer(LaunchPlan& plan) {
  if (plan.spec.trainer_json.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(plan.trainer, FindTrainerWays(plan.spec, IsOnlyHere(plan), BundlePaths::Find()));
  if (plan.spec.gpu.empty()) return absl::OkStatus();
  return CheckKitUsesGpus(plan, "the GPUs asked for");
}

constexpr char kSeveralHint[] =
    "--host A,B,C names machines of yours, one for each node; --provider slurm takes them in one "
    "allocation; --provider lambda,digitalocean rents them";
constexpr char kNoNetwork[] = "its machines have no private network that all of them share";

// Refuses what a run on several machines cannot have yet, and says what it can.
absl::Status CheckSeveral(const std::vector<NodeTarget>& machines, const LaunchPlan& plan) {
  const std::string what = absl::StrCat("a run on ", plan.spec.nodes, " machines");
  const std::vector<std::string>& providers = plan.spec.providers;
  const auto cluster = std::find(providers.begin(), providers.end(), kClusterProvider);
  if (plan.rents && cluster != providers.end() && providers.size() > 1) {
    return UsageError(
        absl::StrCat("nodes: ", what, " is on a cluster or at markets, and not on either"),
        "name slurm alone, or leave it out");
  }
  if (plan.rents && cluster == providers.end() && !plan.spec.volume.name.empty()) {
    return UsageError(absl::StrCat("nodes: ", what,
                                   " has no volume: only one of its machines "
                                   "could mount it"),
                      "data: brings what they read to all of them");
  }
  if (plan.rents && ResumesWhenPreempted(plan.spec)) {
    return UsageError(absl::StrCat("retry.on: preempted: ", what, " is not resumed"),
                      "lost begins it anew as long as its allocation goes on");
  }
  if (machines.empty() || machines.size() == static_cast<size_t>(plan.spec.nodes)) {
    return absl::OkStatus();
  }
  return UsageError(absl::StrCat("nodes: ", what, " does not fit on ",
                                 machines.size() == 1 ? "that one" : "those ",
                                 machines.size() == 1 ? "" : absl::StrCat(machines.size())),
                    kSeveralHint);
}

// Takes the markets out of `plan` whose machines may not reach each other, and says so. An error
// when none is left.
absl::Status LeaveOutWithoutNetwork(LaunchPlan& plan) {
  std::vector<Market> kept;
  std::vector<std::string> names;
  for (Market& market : plan.rental.markets) {
    const bool reach = market.provider->traits().region_network || market.name == kClusterProvider;
    if (reach) {
      kept.push_back(std::move(market));
      continue;
    }
    names.push_back(market.name);
    plan.rental.left_out.push_back(
        {market.name, absl::UnimplementedError(kNoNetwork), /*offers=*/0, /*other_time=*/false});
  }
  plan.rental.markets = std::move(kept);
  if (!plan.rental.markets.empty()) return absl::OkStatus();
  return UsageError(
      absl::StrCat("nodes: a run on ", plan.spec.nodes, " machines cannot rent them at ",
                   absl::StrJoin(names, " or "), ": ", kNoNetwork),
      kSeveralHint);
}

// Returns the machines that --host names, the first one first.
absl::StatusOr<std::vector<NodeTarget>> ResolveHosts(const TargetFlags& target, int nodes) {
  std::vector<std::string> hosts = absl::StrSplit(target.host, ',');
  for (const std::string& host : hosts) {
    if (hosts.size() > 1 && host.empty()) {
      return UsageError("--host: a name between the commas is empty", kSeveralHint);
    }
  }
  if (nodes > 1 && static_cast<size_t>(nodes) != hosts.size()) {
    return UsageError(absl::StrCat("nodes: ", nodes, " machines, and --host names ",
                                   target.host.empty() ? 0 : hosts.size()),
                      kSeveralHint);
  }
  if (hosts.size() > static_cast<size_t>(kMostNodes)) {
    return UsageError(absl::StrCat("--host: at most ", kMostNodes, " machines"), kSeveralHint);
  }
  std::vector<NodeTarget> targets;
  for (const std::string& host : hosts) {
    TargetFlags one = target;
    one.host = host;
    ASSIGN_OR_RETURN(targets.emplace_back(), ResolveTarget(one));
  }
  return targets;
}

// Finds out where the run goes: to `machines`, to some of the user's own, or to rented ones.
absl::Status ChooseTarget(CommandContext& context, const Holdings& holdings,
                          const LaunchFlags& flags, const std::vector<NodeTarget>& machines,
                          LaunchPlan& plan) {
  if (machines.empty()) {
    ASSIGN_OR_RETURN(plan.rents, PlansToRent(context, holdings, flags, plan));
  }
  if (!plan.rents && ResumesWhenPreempted(plan.spec)) {
    return UsageError("retry.on: preempted goes with rented machines; yours is not taken away",
                      "lost covers a node that restarted");
  }
  if (plan.spec.nodes > 1) {
    RETURN_IF_ERROR(CheckSeveral(machines, plan));
    if (plan.rents) RETURN_IF_ERROR(LeaveOutWithoutNetwork(plan));
  }
  if (!machines.empty()) {
    plan.own_machine = machines.front();
    plan.other_machines.assign(machines.begin() + 1, machines.end());
    if (plan.spec.registry.empty()) return absl::OkStatus();
    return WithHint(CheckNothingRented(plan.spec), "--provider rents a machine for it");
  }
  if (plan.rents) return absl::OkStatus();
  RETURN_IF_ERROR(
      WithHint(CheckNothingRented(plan.spec), "gpuctl offers lists what could be rented"));
  TargetFlags target = flags.target;
  // With --host local, "ssh" means a machine of that name.
  const std::vector<std::string>& providers = plan.spec.providers;
  if (!providers.empty() && (target.host.empty() || providers.front() == "ssh")) {
    target.provider = providers.front();
  }
  ASSIGN_OR_RETURN(std::vector<NodeTarget> targets, ResolveHosts(target, plan.spec.nodes));
  plan.own_machine = std::move(targets.front());
  plan.other_machines.assign(targets.begin() + 1, targets.end());
  if (plan.other_machines.empty()) return absl::OkStatus();
  plan.spec.nodes = static_cast<int>(targets.size());
  return CheckSeveral(targets, plan);
}

// Returns the platforms that the launch needs programs for, as far as they are known before offers
// are. Offers are only taken for platforms that there are programs for; so there must be one.
std::vector<NodePlatform> PlatformsOf(const LaunchPlan& plan) {
  if (!plan.rents) {
    if (plan.own_machine.provider == "local") return {OwnPlatform()};
    return {};
  }
  const NodePrograms programs = NodePrograms::Find();
  for (const NodePlatform platform : LinuxPlatforms()) {
    if (programs.For(platform) != nullptr) return {platform};
  }
  return {NodePlatform::kLinuxX86_64};
}

// Finds, checks and prepares what the trainer takes from this laptop.
absl::Status PlanInputs(CommandContext& context, LaunchPlan& plan) {
  if (plan.spec.trainer_json.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string root, ResolveWorkdir(plan.spec.workdir));
  const bool own_files = !IsOnlyHere(plan) && (!plan.rents || !plan.spec.volume.name.empty());
  absl::StatusOr<TrainerInputs> inputs = PlanTrainerInputs(context, root, own_files, plan.spec);
  if (!inputs.ok()) {
    const bool interrupted = absl::IsCancelled(inputs.status());
    return interrupted ? inputs.status() : WithExitCode(inputs.status(), kExitUsage);
  }
  plan.inputs = *std::move(inputs);
  return absl::OkStatus();
}

// Makes the job out of the spec, with the secrets and the trainer that is sent along.
absl::Status PlanJob(CommandContext& context, LaunchPlan& plan) {
  if (!context.make_links) RETURN_IF_ERROR(FindNodePrograms(PlatformsOf(plan)).status());
  RETURN_IF_ERROR(PlanTrainer(plan));
  const TrainerStart start = plan.trainer.has_value() ? FirstStart(*plan.trainer) : TrainerStart();
  ASSIGN_OR_RETURN(plan.job, MakeJobSpec(plan.spec, plan.own_machine, start));
  ASSIGN_OR_RETURN(plan.secrets, ReadSecrets(context, plan.spec));
  return absl::OkStatus();
}

// Says which parts of the work directory at `root` a job does not see, because data takes their
// place.
void TellOfCovered(CommandContext& context, const std::vector<DataTree>& data,
                   const std::string& root) {
  for (const DataTree& tree : data) {
    const std::string place = JoinPath(root, tree.path);
    std::error_code ignored;
    if (!PathExists(place) || std::filesystem::equivalent(place, tree.place(), ignored)) continue;
    context.Say(absl::StrCat(tree.path, " of the work directory stays here: the job gets ",
                             tree.place(), " in its place"));
  }
}

// Returns the paths below the work directory at `root` that it is sent without.
std::vector<std::string> LeftOut(const LaunchFlags& flags, const LaunchPlan& plan,
                                 const std::string& root) {
  std::vector<std::string> paths = PathsOfData(plan.data, root);
  paths.insert(paths.end(), plan.inputs.rows.begin(), plan.inputs.rows.end());
  paths.insert(paths.end(), flags.leave_out.begin(), flags.leave_out.end());
  if (plan.trainer.has_value()) paths.emplace_back(kTrainerKitPath);
  return paths;
}

// Refuses a command whose interpreter gets a script that is not in the work directory at `root`,
// where one with nearly the same name is, and nothing else could put it there.
absl::Status CheckScript(const RunSpec& spec, const std::string& root) {
  static constexpr const char* kInterpreters[] = {"python", "python3", "bash", "sh", "torchrun"};
  const bool runs_script =
      std::any_of(std::begin(kInterpreters), std::end(kInterpreters),
                  [&spec](const char* program) { return spec.command.front() == program; });
  if (!runs_script || spec.command.size() < 2 || !spec.setup.empty() || !spec.data.empty()) {
    return absl::OkStatus();
  }
  const std::string& script = spec.command[1];
  const bool is_script = absl::EndsWith(script, ".py") || absl::EndsWith(script, ".sh");
  if (!is_script || absl::StartsWith(script, "/") || absl::StrContains(script, "{") ||
      PathExists(JoinPath(root, script))) {
    return absl::OkStatus();
  }
  const absl::StatusOr<std::vector<std::string>> there =
      ListDirectory(DirName(JoinPath(root, script)));
  if (!there.ok()) return absl::OkStatus();
  const std::string near = Nearest(BaseName(script), *there);
  if (near.empty()) return absl::OkStatus();
  return UsageError(
      absl::StrCat(script, " is not in the work directory (did you mean \"", near, "\"?)"),
      "the job would only say so on its machine");
}

// Refuses a script of the work directory at `root` whose name stands where a program's is wanted:
// PATH does not lead there, and the job would only say so on a machine that bills.
absl::Status CheckProgram(const RunSpec& spec, const std::string& root) {
  if (spec.command.empty()) return absl::OkStatus();
  const std::string& name = spec.command.front();
  if (absl::EndsWith(name, ".ipynb")) {
    return UsageError(
        absl::StrCat(name, " is a notebook, and no program"),
        absl::StrCat("make a script of it, jupyter nbconvert --to script ", ShellQuote(name),
                     ", and launch that: -- python3 ",
                     ShellQuote(absl::StrCat(absl::StripSuffix(name, ".ipynb"), ".py"))));
  }
  RETURN_IF_ERROR(CheckScript(spec, root));
  const bool python = absl::EndsWith(name, ".py"), shell = absl::EndsWith(name, ".sh");
  if ((!python && !shell) || absl::StrContains(name, '/')) return absl::OkStatus();
  if (!PathExists(JoinPath(root, name))) return absl::OkStatus();
  return UsageError(
      absl::StrCat(name, " is a script of the work directory, and no program that PATH leads to"),
      absl::StrCat("a script needs its interpreter: -- ", python ? "python3 " : "bash ",
                   ShellQuote(name)));
}

absl::Status PlanWorkdir(CommandContext& context, const LaunchFlags& flags, LaunchPlan& plan) {
  WorkdirOptions options;
  options.allow_large = flags.yes;
  options.include = flags.include;
  ASSIGN_OR_RETURN(const std::string root, ResolveWorkdir(plan.spec.workdir));
  RETURN_IF_ERROR(CheckProgram(plan.spec, root));
  TellOfCovered(context, plan.data, root);
  options.leave_out = LeftOut(flags, plan, root);
  ASSIGN_OR_RETURN(plan.workdir, ScanWorkdir(context, plan.spec.workdir, options));
  plan.job.set_manifest_digest(plan.workdir->digest);
  return absl::OkStatus();
}

// Adds the checkpoints with which the run goes on.
absl::Status PlanStart(CommandContext& context, const std::vector<StartPoint>& resume,
                       LaunchPlan& plan) {
  ASSIGN_OR_RETURN(plan.data.emplace_back(), ScanCheckpointTree(context, resume.front()));
  (*plan.job.mutable_env())[kResumeFrom] = ResumeWord(resume.front());
  if (plan.spec.nodes <= 1) return absl::OkStatus();
  // The trainer's first process reads it, and sends it to the others.
  const bool first_alone = plan.trainer.has_value();
  bool differ = first_alone;
  plan.starts.resize(static_cast<size_t>(plan.spec.nodes));
  plan.starts.front() = plan.data.back();
  for (size_t rank = 1; rank < plan.starts.size() && !first_alone; ++rank) {
    const StartPoint& own = rank < resume.size() ? resume[rank] : resume.front();
    if (own.path == resume.front().path) {
      plan.starts[rank] = plan.data.back();
      continue;
    }
    if (ResumeWord(own) != ResumeWord(resume.front())) {
      return UsageError(absl::StrCat("resume: the checkpoints ", resume.front().path, " and ",
                                     own.path, " of the run's machines have different names"),
                        "--from PATH names one for all");
    }
    ASSIGN_OR_RETURN(plan.starts[rank], ScanCheckpointTree(context, own));
    differ = true;
  }
  if (!differ) plan.starts.clear();
  return absl::OkStatus();
}

// Scans all that is sent, and puts it into the job.
absl::Status PlanTrees(CommandContext& context, const LaunchFlags& flags,
                       const std::vector<StartPoint>& resume, LaunchPlan& plan) {
  RunSpec others = plan.spec;
  for (const ModelInput& folder : plan.inputs.folders) others.data.erase(folder.local);
  ASSIGN_OR_RETURN(plan.data, ScanDataTrees(context, others));
  for (const ModelInput& folder : plan.inputs.folders) {
    ASSIGN_OR_RETURN(plan.data.emplace_back(), ScanModelInput(context, folder));
  }
  if (!resume.empty()) RETURN_IF_ERROR(PlanStart(context, resume, plan));
  if (!flags.no_workdir) RETURN_IF_ERROR(PlanWorkdir(context, flags, plan));
  AddDataTrees(plan.data, plan.workdir.has_value() ? plan.workdir->path : "", plan.job);
  return absl::OkStatus();
}

// Returns what a later `resume` launches again: the spec with the directories that were found.
LaunchRecord RecordOf(const LaunchPlan& plan, const LaunchFlags& flags,
                      const std::vector<StartPoint>& resume) {
  LaunchRecord record{plan.spec,        flags.include,  flags.leave_out,
                      flags.no_workdir, flags.pull_dir, flags.like_run_id};
  record.leave_out.insert(record.leave_out.end(), plan.inputs.rows.begin(), plan.inputs.rows.end());
  // A run can resume only from a checkpoint that is on this laptop.
  if (record.pull_dir.empty() && flags.detach && ResumesWhenPreempted(plan.spec)) {
    record.pull_dir = AbsolutePath(".").value_or("");
  }
  if (plan.workdir.has_value()) record.spec.workdir = plan.workdir->path;
  record.spec.data.clear();
  for (const DataTree& tree : plan.data) {
    if (resume.empty() || tree.path != kResumePath) record.spec.data[tree.place()] = tree.path;
  }
  return record;
}

// Records the commit of the work directory and the changes since.
void RecordSource(CommandContext& context, const LaunchFlags& flags, const LaunchPlan& plan,
                  RunRow& row) {
  SourceQuestion question;
  question.root = plan.workdir->path;
  question.include = flags.include;
  question.leave_out = LeftOut(flags, plan, question.root);
  Source source = ReadSource(GitEnvironment::FromProcess(), question);
  if (source.record.diff_cut) {
    context.Say(absl::StrCat("the work directory differs a lot from its commit: the first ",
                             FormatBytes(kMostDiffBytes), " of the diff are kept with the run"));
  }
  row.source_json = FormatSourceRecord(source.record);
  row.source_diff = std::move(source.diff);
}

// Fills in what the list of runs will say, and gives run and job their ids.
void FillRow(CommandContext& context, const LaunchFlags& flags,
             const std::vector<StartPoint>& resume, LaunchPlan& plan) {
  RunRow& row = plan.row;
  row.run_id = NewRunId();
  row.job_id = NewJobId();
  for (int rank = 1; rank < plan.spec.nodes; ++rank) plan.member_ids.push_back(NewRunId());
  row.name = plan.spec.name.empty() ? NewReadableName() : plan.spec.name;
  row.command = CommandLine(plan.spec);
  row.launch_json = FormatLaunchRecord(RecordOf(plan, flags, resume));
  row.workdir = plan.workdir.has_value() ? plan.workdir->path : "";
  row.checkpoint_patterns = plan.spec.checkpoints;
  row.artifact_patterns = plan.spec.artifacts;
  row.ports = plan.spec.ports;
  row.output_segment_bytes = OutputShape(plan.job).segment_bytes;
  row.created_ms = context.NowMs();
  row.tags = flags.tags;
  std::sort(row.tags.begin(), row.tags.end());
  row.tags.erase(std::unique(row.tags.begin(), row.tags.end()), row.tags.end());
  row.note = flags.note;
  if (plan.workdir.has_value() && !flags.dry_run) RecordSource(context, flags, plan, row);
  plan.job.set_job_id(row.job_id);
  plan.job.set_run_id(row.run_id);
}

Work WorkOf(const LaunchPlan& plan) {
  const std::optional<Lease>& idle = plan.rental.idle;
  const RunRow& row = plan.row;
  if (idle.has_value()) return {row.workdir, row.command, idle->gpu_name, idle->gpu_count};
  return {row.workdir, row.command, Cheapest(plan).gpu_name, Cheapest(plan).gpu_count};
}

// Finds the offers or an idle machine, and checks that the trainer can use its GPUs.
absl::Status PlanRental(CommandContext& context, Holdings& holdings, const LaunchFlags& flags,
                        LaunchPlan& plan) {
  RETURN_IF_ERROR(FindOffers(context, holdings, flags, plan));
  const bool rents_gpus = (plan.rental.idle.has_value() && plan.rental.idle->gpu_count > 0) ||
                          std::any_of(plan.rental.in_order.begin(), plan.rental.in_order.end(),
                                      [](const Offer& offer) { return offer.gpu_count > 0; });
  if (!plan.trainer.has_value() || !rents_gpus) return absl::OkStatus();
  return CheckKitUsesGpus(plan, absl::StrCat("a machine of ", MarketOf(plan)));
}

}  // namespace

absl::StatusOr<LaunchPlan> MakeLaunchPlan(CommandContext& context, Holdings& holdings,
                                          const LaunchFlags& flags, const LikeRun* like,
                                          const NamedMachine* on) {
  Settings settings;
  ASSIGN_OR_RETURN(RunSpec spec, BuildRunSpec(context, flags,
                                              like == nullptr ? nullptr : &like->spec, &settings));
  if (on != nullptr) {
    ASSIGN_OR_RETURN(LaunchPlan plan, PlanLaunch(context, holdings, flags, std::move(spec),
                                                 {on->target}, {}, std::move(settings)));
    plan.joined = on->lease;
    return plan;
  }
  if (like == nullptr) {
    return PlanLaunch(context, holdings, flags, std::move(spec), {}, {}, std::move(settings));
  }
  DropForeignCostLimit(flags, spec);
  return PlanLaunch(context, holdings, flags, std::move(spec),
                    OwnMachinesOf(like->row, like->members, flags), {});
}

absl::StatusOr<LaunchPlan> PlanLaunch(CommandContext& context, Holdings& holdings,
                                      const LaunchFlags& flags, RunSpec spec,
                                      const std::vector<NodeTarget>& machines,
                                      const std::vector<StartPoint>& resume, Settings settings) {
  LaunchPlan plan;
  plan.settings = std::move(settings);
  plan.spec = std::move(spec);
  RETURN_IF_ERROR(ChooseTarget(context, holdings, flags, machines, plan));
  RETURN_IF_ERROR(PlanInputs(context, plan));
  RETURN_IF_ERROR(PlanJob(context, plan));
  RETURN_IF_ERROR(PlanTrees(context, flags, resume, plan));
  FillRow(context, flags, resume, plan);
  plan.names_results = flags.down || NamesResults(plan.spec, plan.row.workdir);
  if (!plan.rents) return plan;
  if (flags.down && !flags.kept) plan.needs_this_gpuctl.emplace_back("--down");
  if (!flags.pull.empty() && !flags.detach && !flags.kept)
    plan.needs_this_gpuctl.emplace_back("--pull");
  RETURN_IF_ERROR(PlanRental(context, holdings, flags, plan));
  return plan;
}

LaunchPlan PlanOfPart(const LaunchPlan& plan, int rank) {
  LaunchPlan part = plan;
  if (plan.starts.empty()) return part;
  const std::optional<DataTree>& start = plan.starts[static_cast<size_t>(rank)];
  const auto is_start = [](const auto& tree) { return tree.path == kResumePath; };
  part.data.erase(std::remove_if(part.data.begin(), part.data.end(), is_start), part.data.end());
  if (start.has_value()) part.data.push_back(*start);
  if (!start.has_value()) part.job.mutable_env()->erase(kResumeFrom);
  part.job.clear_data();
  AddDataTrees(part.data, part.workdir.has_value() ? part.workdir->path : "", part.job);
  return part;
}

void AddLastTime(Holdings& holdings, RunStore& store, int64_t now_ms, LaunchPlan& plan) {
  if (plan.rents) plan.last_time = FindLastTime(holdings, store, WorkOf(plan), now_ms);
}

const Offer& Cheapest(const LaunchPlan& plan) { return plan.rental.in_order.front(); }

const std::string& MarketOf(const LaunchPlan& plan) {
  return plan.rental.idle.has_value() ? plan.rental.idle->provider : Cheapest(plan).provider;
}

int MachinesToRent(const LaunchPlan& plan) {
  if (!plan.rents) return 0;
  const std::vector<std::string>& providers = plan.spec.providers;
  const bool allocation = providers == std::vector<std::string>{kClusterProvider};
  return allocation ? 1 : std::max(1, plan.spec.nodes);
}

double PriceOf(const LaunchPlan& plan) {
  if (!plan.rents) return 0;
  if (plan.rental.idle.has_value()) {
    double sum = plan.rental.idle->usd_per_hour();
    for (const Lease& lease : plan.rental.more_idle) sum += lease.usd_per_hour();
    return sum;
  }
  if (plan.rental.in_order.empty()) return PriceLimitOf(plan);
  return Cheapest(plan).price_usd_per_hour * MachinesToRent(plan);
}

double PriceLimitOf(const LaunchPlan& plan) {
  const int machines = MachinesToRent(plan);
  const RentalPlan& rental = plan.rental;
  if (plan.spec.max_price_usd_per_hour.has_value()) {
    return machines * *plan.spec.max_price_usd_per_hour;
  }
  if (rental.own_limit_usd_per_hour.has_value()) return machines * *rental.own_limit_usd_per_hour;
  double dearest = 0;
  for (const Offer& offer : rental.in_order) dearest = std::max(dearest, offer.price_usd_per_hour);
  return machines * dearest;
}

}  // namespace gpuctl
