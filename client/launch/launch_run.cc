#include "client/launch/launch_run.h"

#include <unistd.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/base/exit_codes.h"
#include "client/base/paths.h"
#include "client/base/quantity.h"
#include "client/follow/run_outcome.h"
#include "client/launch/after_run.h"
#include "client/launch/find_machine.h"
#include "client/launch/gang_launch.h"
#include "client/launch/launch.h"
#include "client/launch/push_plan.h"
#include "client/market/secret_values.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/plan/plan_text.h"
#include "client/plan/resume_plan.h"
#include "client/rent/lease_limits.h"
#include "client/results/pull_files.h"
#include "client/runs/run_end.h"
#include "client/runs/run_status.h"
#include "client/runs/run_store.h"
#include "client/show/show_run.h"
#include "client/spec/job_spec.h"
#include "client/streams/follower.h"
#include "client/streams/mirror.h"
#include "client/terminal/shown_name.h"
#include "client/trainer/trainer_choice.h"
#include "client/wishes/held_wish.h"
#include "client/wishes/wish_text.h"
#include "common/base/status_macros.h"
#include "common/job/lifecycle.h"
#include "provisioning/ledger/lease.h"

namespace gpuctl {
namespace {

absl::StatusOr<bool> Agrees(CommandContext& context, const LaunchFlags& flags,
                            const LaunchPlan& plan) {
  if (flags.yes) return true;
  constexpr absl::string_view kNobody = "launch asks before it rents, and there is nobody to ask";
  constexpr absl::string_view kHint = "add -y to accept the price, or --dry-run to see it";
  if (!context.CanAsk()) return UsageError(kNobody, kHint);
  for (const std::string& line : PlanText(plan, ColumnsFor(context, STDERR_FILENO))) {
    context.NoteForQuestion(line);
  }
  return context.AskYesNo(
      plan.rental.idle.has_value() ? "Use it?" : "Rent it?",
      plan.rental.idle.has_value() ? "nothing was started" : "nothing was rented", kNobody, kHint);
}

// Returns the user's own machines of the plan, the first one first.
std::vector<NodeTarget> OwnMachines(const LaunchPlan& plan) {
  std::vector<NodeTarget> machines = {plan.own_machine};
  machines.insert(machines.end(), plan.other_machines.begin(), plan.other_machines.end());
  return machines;
}

// Checks that the user's own machine is what the plan needs, and chooses the trainer for the
// machine of the run, before anything is sent there. Returns nothing for a run without the trainer.
absl::StatusOr<std::optional<ChosenTrainer>> CheckMachine(CommandContext& context,
                                                          LinkFactory& links,
                                                          const LaunchPlan& plan,
                                                          const NodeTarget& target) {
  const RunSpec& spec = plan.spec;
  const bool needs = !plan.rents && (!spec.gpu.empty() || spec.disk_bytes > 0);
  TrainerNode node{target.name, target.provider == "local", 0, std::nullopt};
  const bool sends = plan.trainer.has_value() && (!node.local || plan.trainer->program.empty());
  if (needs || sends) {
    ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context, links, target));
    const bool gpus_matter = sends || !spec.gpu.empty();
    ASSIGN_OR_RETURN(const gpuctl::v1::HelloReply hello,
                     gpus_matter ? calls.HelloWithGpus(context.clock) : calls.Hello());
    if (!plan.rents) RETURN_IF_ERROR(CheckNodeSatisfies(spec, hello, target.name));
    node.gpus = hello.gpus_size();
    node.platform = links.platform();
  }
  if (!plan.trainer.has_value()) return std::optional<ChosenTrainer>();
  ASSIGN_OR_RETURN(ChosenTrainer chosen, ChooseTrainer(context, links, spec, *plan.trainer, node));
  return chosen;
}

// Carries out one plan after another for one `launch` or `resume`.
class Launcher {
 public:
  Launcher(CommandContext& context, Holdings& holdings, RunStore& store, LaunchFlags flags,
           StartTurn turn)
      : context_(context),
        holdings_(holdings),
        store_(store),
        flags_(std::move(flags)),
        turn_(std::move(turn)) {}

  absl::StatusOr<int> Run(LaunchPlan plan, UniqueFd resuming);

 private:
  // Does all but print the name that -q asks for.
  absl::StatusOr<int> Work(LaunchPlan plan, UniqueFd resuming);
  // Records what was asked for the run's end, before the run exists.
  absl::StatusOr<std::vector<HeldWish>> MakeWishes(const RunRow& row);
  // Ends what was recorded of it, or says what becomes of it when the run goes on.
  absl::Status SettleWishes(const RunRow& row);
  // Asks the user, finds the machine of `plan`, and starts and shows its run there. `resuming` is
  // released once the run is in the list.
  absl::StatusOr<int> LaunchOnce(const LaunchPlan& plan, UniqueFd& resuming);
  absl::StatusOr<int> Start(const LaunchPlan& plan, const std::vector<NodeTarget>& machines,
                            GiveBack* give_back, UniqueFd& resuming);
  // Does so with several machines.
  absl::StatusOr<int> StartTogether(const LaunchPlan& plan, const std::vector<NodeTarget>& machines,
                                    GiveBack* give_back);
  // Prints the run's name after -d.
  absl::Status PrintLaunched(const std::string& run_id);
  // Does the work of --down once the run is no longer shown. The exit code of a failed job wins
  // over that of a failed pull.
  absl::StatusOr<int> End(const RunRow& row, int code);
  // Returns what another machine may cost that goes on with the run `row`.
  absl::StatusOr<Agreed> StillAgreed(const RunRow& row, double usd_per_hour);

  CommandContext& context_;
  Holdings& holdings_;
  RunStore& store_;
  LaunchFlags flags_;
  StartTurn turn_;
  std::vector<HeldWish> wishes_;  // of the newest run
  bool all_came_ = false;         // all that --pull brings is at home
  std::string newest_;            // the id of the newest run; "" before its start
};

absl::StatusOr<std::vector<HeldWish>> Launcher::MakeWishes(const RunRow& row) {
  std::vector<Wish> wanted;
  if (flags_.as_before) {
    ASSIGN_OR_RETURN(wishes_, TakeWishesOf(context_, row.resumed_from));
    for (const HeldWish& before : wishes_) wanted.push_back(before.wish());
  }
  Wish wish;
  wish.pull = !flags_.pull.empty() && !flags_.detach;
  wish.down = flags_.down;
  if (wish.pull) {
    ASSIGN_OR_RETURN(wish.keep, ParseKeep(flags_.pull, "--pull"));
  }
  ASSIGN_OR_RETURN(wish.dir, AbsolutePath("."));
  if (wish.pull || wish.down) wanted.push_back(std::move(wish));
  return HoldWishes(context_, row.run_id, std::move(wanted));
}

absl::Status Launcher::SettleWishes(const RunRow& row) {
  if (all_came_ || NothingStarted(store_, row.run_id)) return AllDone(wishes_);
  if (row.end.has_value()) {
    if (!wishes_.empty() && flags_.kept) context_.Say("gpuctl keep brings the rest");
    return absl::OkStatus();
  }
  for (const HeldWish& held : wishes_) {
    TellOfLeftWish(context_, held.wish(), row.name, flags_.kept);
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Launcher::StartTogether(const LaunchPlan& plan,
                                            const std::vector<NodeTarget>& machines,
                                            GiveBack* give_back) {
  ASSIGN_OR_RETURN(wishes_, MakeWishes(plan.row));
  all_came_ = false;
  GangHooks hooks;
  hooks.on_listed = [this, &plan](const RunRow& row) {
    if (plan.rents && (row.rank == 0 || MachinesToRent(plan) > 1)) holdings_.NoteName(row);
  };
  if (give_back != nullptr) {
    hooks.give_back = [give_back] { give_back->OnFailure([] { return false; }); };
  }
  ASSIGN_OR_RETURN(const int code,
                   LaunchGang(context_, store_, flags_, plan, machines, hooks, &all_came_));
  if (flags_.detach) RETURN_IF_ERROR(PrintLaunched(plan.row.run_id));
  return code;
}

absl::StatusOr<int> Launcher::Start(const LaunchPlan& plan, const std::vector<NodeTarget>& machines,
                                    GiveBack* give_back, UniqueFd& resuming) {
  newest_ = plan.row.run_id;
  if (machines.size() > 1) return StartTogether(plan, machines, give_back);
  const NodeTarget& target = machines.front();
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context_, target));
  ASSIGN_OR_RETURN(const std::optional<ChosenTrainer> trainer,
                   CheckMachine(context_, *links, plan, target));
  Launch launch = BeginLaunch(plan, target, trainer.has_value() ? &*trainer : nullptr);
  ShowRunOptions options;
  StartRequest& request = options.start.emplace();
  ASSIGN_OR_RETURN(const ClientPaths paths, context_.Paths());
  ASSIGN_OR_RETURN(request.mirror, Mirror::Open(paths.MirrorDir(launch.row.run_id),
                                                launch.row.output_segment_bytes));
  ASSIGN_OR_RETURN(std::vector<HeldWish> wishes, MakeWishes(launch.row));
  // From here on the run exists, even if this process ends.
  if (const absl::Status inserted = store_.Insert(launch.row); !inserted.ok()) {
    (void)AllDone(wishes);
    return inserted;
  }
  RETURN_IF_ERROR(AllDone(wishes_));  // those of the run that it goes on from
  wishes_ = std::move(wishes);
  all_came_ = false;
  options.all_came = &all_came_;
  resuming.reset();
  if (plan.rents || plan.joined.has_value()) holdings_.NoteName(launch.row);
  request.start = std::move(launch.start);
  request.turn = turn_;
  ASSIGN_OR_RETURN(request.node_id, store_.LastNodeOf(target.name));
  const bool sends_trainer = trainer.has_value() && trainer->tree.has_value();
  if (plan.workdir.has_value() || !plan.data.empty() || sends_trainer) {
    request.push_content = [this, &links, &plan, &trainer, &target] {
      return PushPlan(context_, *links, target, plan, flags_,
                      trainer.has_value() ? &*trainer : nullptr);
    };
  }
  if (give_back != nullptr) {
    request.on_failure = [give_back](const std::function<bool()>& interrupted) {
      give_back->OnFailure(interrupted);
    };
  }
  options.from_beginning = true;
  options.show_output = !context_.quiet;  // the run's name is printed
  options.until_running = flags_.detach;
  if (!flags_.detach) {
    ASSIGN_OR_RETURN(options.pull, ParsePullFlag(flags_.pull, launch.row.name));
  }
  context_.Say(absl::StrCat("launching ", launch.row.name, " on ", target.name));
  ASSIGN_OR_RETURN(const int code,
                   ShowRun(context_, store_, launch.row, links.get(), std::move(options)));
  if (flags_.detach) RETURN_IF_ERROR(PrintLaunched(launch.row.run_id));
  return code;
}

absl::Status Launcher::PrintLaunched(const std::string& run_id) {
  ASSIGN_OR_RETURN(const RunRow row, store_.Get(run_id));
  if (context_.json()) {
    if (row.end.has_value()) return absl::OkStatus();  // ShowRun printed it
    const absl::StatusOr<RunStatus> status = MirroredStatus(context_, row);
    if (!status.ok()) return status.status();
    context_.PrintJson(RunToJson(row, *status));
  } else {
    // A script wants the name of a job that is over already, too.
    context_.PrintLine(row.name);
    if (!row.end.has_value()) context_.Hint(absl::StrCat("gpuctl attach ", row.name, " shows it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Launcher::End(const RunRow& row, int code) {
  if (!row.end.has_value()) {
    RETURN_IF_ERROR(SettleWishes(row));
    context_.Warn(absl::StrCat("the machine stays rented; gpuctl down ", row.name, " ends it"));
    return code;
  }
  const absl::Status status =
      BringHomeAndRelease(context_, holdings_, store_, row, absl::StrCat("./", row.name));
  if (status.ok()) RETURN_IF_ERROR(AllDone(wishes_));
  if (!status.ok() && flags_.kept) {
    context_.Say("gpuctl keep tries it again until it is done");
  }
  if (status.ok() || code == kExitOk) {
    RETURN_IF_ERROR(status);
    return code;
  }
  context_.Warn(status.message());
  if (const std::string hint = HintOf(status); !hint.empty()) {
    context_.Hint(hint);
  }
  return code;
}

absl::StatusOr<int> Launcher::LaunchOnce(const LaunchPlan& plan, UniqueFd& resuming) {
  if (plan.workdir.has_value() && !plan.workdir->skipped.empty()) {
    context_.Warn(absl::StrCat("not sent (neither file, directory nor link): ",
                               FirstFew(plan.workdir->skipped)));
  }
  if (plan.joined.has_value()) {
    RETURN_IF_ERROR(
        JoinMachine(context_, holdings_, *plan.joined, plan.spec, plan.row.run_id, plan.row.name));
  }
  if (!plan.rents) return Start(plan, OwnMachines(plan), nullptr, resuming);
  const std::string& run_id = plan.row.run_id;
  const bool leaves_idle = flags_.down && plan.rental.idle.has_value() && plan.rental.others_wait;
  // Before the question.
  if (leaves_idle) {
    for (const Lease& lease : plan.rental.waits_on) {
      TellOfOthersResults(context_, store_, lease, run_id);
    }
  }
  ASSIGN_OR_RETURN(const bool agreed, Agrees(context_, flags_, plan));
  if (!agreed) {
    context_.Say("nothing was rented");
    return kExitFailed;
  }
  // Who is asked sees it in the plan.
  if (const std::string needs = NeedsText(plan); flags_.yes && !needs.empty()) {
    context_.Warn(needs);
  }
  // Held until the run is no longer shown: by then its job has begun or never will.
  ASSIGN_OR_RETURN(const Machine machine, FindMachine(context_, holdings_, flags_, plan));
  if (flags_.down && machine.others_wait && !leaves_idle) {
    const absl::StatusOr<std::optional<Lease>> lease = holdings_.LeaseOf(run_id);
    if (lease.ok() && lease->has_value()) TellOfOthersResults(context_, store_, **lease, run_id);
  }
  std::vector<NodeTarget> machines = {machine.target};
  machines.insert(machines.end(), machine.others.begin(), machine.others.end());
  std::vector<std::string> run_ids = {run_id};
  std::string names = machine.target.name;
  // The nodes of an allocation are rented as one.
  for (size_t i = 0; i < machine.others.size() && MachinesToRent(plan) > 1; ++i) {
    run_ids.push_back(plan.member_ids[i]);
    absl::StrAppend(&names, ", ", machine.others[i].name);
  }
  GiveBack give_back(context_, holdings_, store_, run_ids, names, machine.fresh && !flags_.keep);
  absl::StatusOr<int> code = Start(plan, machines, &give_back, resuming);
  if (!code.ok() || NothingStarted(store_, run_id)) give_back.OnFailure();
  return code;
}

absl::StatusOr<Agreed> Launcher::StillAgreed(const RunRow& row, double usd_per_hour) {
  ASSIGN_OR_RETURN(const std::optional<Lease> lease, holdings_.LeaseOf(row.run_id));
  if (!lease.has_value()) return absl::NotFoundError("the ledger does not know its machine");
  Agreed agreed{usd_per_hour, 0};
  ASSIGN_OR_RETURN(agreed.cost_usd, CostLeftOver(*lease, context_.NowMs()));
  return agreed;
}

absl::StatusOr<int> Launcher::Run(LaunchPlan plan, UniqueFd resuming) {
  const absl::StatusOr<int> code = Work(std::move(plan), std::move(resuming));
  // After -d the name is printed already. A run on a host that was never reached is not in the
  // list.
  if (context_.quiet && !flags_.detach && !newest_.empty()) {
    const absl::StatusOr<RunRow> row = store_.Get(newest_);
    if (row.ok()) context_.PrintLine(row->name);
  }
  return code;
}

absl::StatusOr<int> Launcher::Work(LaunchPlan plan, UniqueFd resuming) {
  const bool resumes = ResumesWhenPreempted(plan.spec) && !flags_.detach;
  // A run can resume only from a checkpoint that is on this laptop.
  if (resumes && flags_.pull.empty()) flags_.pull = "1";
  if (flags_.detach && !flags_.kept &&
      (ResumesWhenPreempted(plan.spec) || !flags_.pull_dir.empty())) {
    context_.Say(
        "gpuctl keep brings the results of a run after -d home and resumes it when it was "
        "preempted; gpuctl keep --install makes this computer do it by itself");
  }
  if (flags_.detach && ResumesWhenPreempted(plan.spec)) {
    ASSIGN_OR_RETURN(const std::vector<std::string> unseen, SecretsNotStored(context_, plan.spec));
    for (const std::string& name : unseen) {
      context_.Warn(
          absl::StrCat("gpuctl keep has none of this shell's variables, and could not "
                       "resume the run without secret ",
                       name, ": gpuctl login --secret ", name, " keeps it"));
    }
  }
  const int retries = plan.spec.max_retries;
  const double usd_per_hour = HighestPrice(plan);
  ASSIGN_OR_RETURN(const ClientPaths paths, context_.Paths());
  for (int retry = 1;; ++retry) {
    const absl::StatusOr<int> launched = LaunchOnce(plan, resuming);
    if (!launched.ok() && NothingStarted(store_, plan.row.run_id)) (void)AllDone(wishes_);
    RETURN_IF_ERROR(launched.status());
    const int code = *launched;
    const absl::StatusOr<RunRow> row = store_.Get(plan.row.run_id);
    if (!row.ok()) return code;  // nothing was launched
    retry += RestartsOf(paths.MirrorDir(row->run_id));
    if (!resumes || retry > retries || !row->end.has_value() || !IsPreempted(*row->end)) {
      if (flags_.down && !NothingStarted(store_, row->run_id)) return End(*row, code);
      RETURN_IF_ERROR(SettleWishes(*row));
      if (NothingStarted(store_, row->run_id)) return code;
      TellWhatIsLeft(context_, holdings_, store_, *row);
      return code;
    }
    resuming.reset();
    absl::StatusOr<Agreed> agreed = StillAgreed(*row, usd_per_hour);
    if (agreed.ok()) agreed->retries_used = retry;
    flags_.yes = true;
    absl::StatusOr<ResumePlan> next =
        agreed.ok() ? PlanResume(context_, holdings_, store_, flags_, *row, *agreed)
                    : agreed.status();
    // Too little of the run's own limits is left.
    if (!agreed.ok() || absl::IsResourceExhausted(next.status())) {
      context_.Warn(
          absl::StrCat(row->name, " does not go on by itself: ", next.status().message()));
      context_.Hint(absl::StrCat("gpuctl resume ", row->name,
                                 " rents another machine at a price that you accept"));
      if (flags_.down) return End(*row, code);
      RETURN_IF_ERROR(SettleWishes(*row));
      return code;
    }
    RETURN_IF_ERROR(next.status());
    context_.Say(absl::StrCat(row->name, " goes on on another machine, ", retry, " of ", retries,
                              " times, for up to ", FormatUsd(usd_per_hour), " per hour, ",
                              FormatUsd(agreed->cost_usd), " in all"));
    plan = std::move(next->plan);
    resuming = std::move(next->resuming);
  }
}

}  // namespace

absl::Status CheckOwnMachines(CommandContext& context, const LaunchPlan& plan) {
  const RunSpec& spec = plan.spec;
  const int gpus = spec.gpus.value_or(0);
  if (plan.rents || (spec.gpu.empty() && spec.disk_bytes == 0 && gpus == 0)) {
    return absl::OkStatus();
  }
  for (const NodeTarget& target : OwnMachines(plan)) {
    ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, target));
    ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context, *links, target));
    const bool gpus_matter = gpus > 0 || !spec.gpu.empty();
    ASSIGN_OR_RETURN(const gpuctl::v1::HelloReply hello,
                     gpus_matter ? calls.HelloWithGpus(context.clock) : calls.Hello());
    RETURN_IF_ERROR(CheckNodeSatisfies(spec, hello, target.name));
    if (hello.gpus_size() >= gpus) continue;
    return WithExitCode(
        WithHint(absl::NotFoundError(absl::StrCat(target.name, " has ", hello.gpus_size(),
                                                  " GPUs; the run asks for ", gpus)),
                 "gpuctl doctor shows what it has; or change --gpus"),
        kExitCapacity);
  }
  return absl::OkStatus();
}

absl::StatusOr<int> LaunchRun(CommandContext& context, Holdings& holdings, RunStore& store,
                              LaunchFlags flags, LaunchPlan plan, UniqueFd resuming,
                              StartTurn turn) {
  return Launcher(context, holdings, store, std::move(flags), std::move(turn))
      .Run(std::move(plan), std::move(resuming));
}

}  // namespace gpuctl
