#include "client/dispatch/start_entry.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/base/exit_codes.h"
#include "client/batch/batch_budget.h"
#include "client/batch/batch_plan.h"
#include "client/dispatch/join_cost.h"
#include "client/dispatch/settle_claims.h"
#include "client/launch/launch_run.h"
#include "client/plan/launch_plan.h"
#include "client/rent/join_machine.h"
#include "client/rent/lease_limits.h"
#include "client/spec/launch_record.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "provisioning/rental/rental.h"

namespace gpuctl {
namespace {

// After this many failures that may be its own fault an entry is given up.
constexpr int kMostFailures = 5;
constexpr absl::Duration kFirstWait = absl::Seconds(15);
// The cause of a start whose machine, idle or shared, went to another run or ended: nothing is
// wrong.
constexpr char kMachineTaken[] = "machine-taken";
constexpr absl::Duration kTakenWait = absl::Seconds(1);
// A batch whose money is used up looks again after this.
constexpr absl::Duration kMoneyWait = absl::Seconds(20);

// Takes out what only rented machines have.
void ForOwnMachine(const BatchHost& host, LaunchFlags& flags, RunSpec& spec) {
  const bool local = host.host == "local";
  spec.providers.clear();
  if (local) spec.providers = {"local"};
  flags.target.host = local ? "" : host.host;
  flags.target.port = host.port;
  flags.target.identity = host.identity;
  spec.max_price_usd_per_hour.reset();
  spec.cost_limit_usd.reset();
  spec.on_price_rise = "tell";
  spec.spot = false;
  spec.regions.clear();
  spec.image.clear();
  spec.registry = RegistryRequest();
  spec.volume = VolumeRequest();
  spec.retry_on.erase(std::remove(spec.retry_on.begin(), spec.retry_on.end(), kOnPreempted),
                      spec.retry_on.end());
}

// What a failed start means.
enum class Fault {
  kEntry,    // it can never start
  kMachine,  // its machine, or the market; another may do
  kUnknown,
};

Fault FaultOfStart(const absl::Status& status) {
  switch (ExitCodeOf(status)) {
    case kExitUsage:
    case kExitCannotRun:
    case kExitNotFound:
      return Fault::kEntry;
    case kExitUnreachable:
    case kExitCapacity:
    case kExitProvider:
    case kExitCredentials:
      return Fault::kMachine;
    default:
      return Fault::kUnknown;
  }
}

// Removes the turn's lock file if it is the one that this process got as its stdin.
void RemoveOwnTurn(const std::string& path) {
  struct stat mine {};
  struct stat there {};
  if (fstat(STDIN_FILENO, &mine) == 0 && lstat(path.c_str(), &there) == 0 &&
      mine.st_dev == there.st_dev && mine.st_ino == there.st_ino) {
    (void)file_ops::Unlink(path);
  }
}

// Waits for the entries whose starts come just before, and lets the next ones wait.
class Turn {
 public:
  struct Before {
    std::string on_machine, in_batch;  // entry ids; "" for none
  };
  Turn(CommandContext& context, BatchStore& batches, const std::string& state_dir,
       const std::string& entry_id, Before before)
      : context_(context),
        batches_(batches),
        state_dir_(state_dir),
        own_path_(TurnLockPath(state_dir, entry_id)),
        before_(std::move(before)) {}

  // Returns once both entries are claimed, so that they get their money and their place first.
  void WaitForClaim() {
    for (const std::string& entry_id : {before_.on_machine, before_.in_batch}) {
      while (Holds(entry_id) && Waits(entry_id)) context_.clock.SleepFor(kLookEvery);
    }
  }
  // Returns once the machine has that entry's job, or never gets it. Any thread may call it.
  void WaitForJob(const std::function<bool()>& stopped) const {
    while (Holds(before_.on_machine) && !stopped()) context_.clock.SleepFor(kLookEvery);
  }
  // True when somebody has taken the turn back (TakeTurnsBack).
  static bool IsTakenBack() {
    struct stat mine {};
    return fstat(STDIN_FILENO, &mine) == 0 && S_ISREG(mine.st_mode) && mine.st_nlink == 0;
  }
  // Lets the next one go on: gives up the lock that this process got as its stdin.
  void Done() const {
    RemoveOwnTurn(own_path_);
    const UniqueFd nothing(file_ops::Open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (nothing.get() >= 0) (void)dup2(nothing.get(), STDIN_FILENO);
  }

 private:
  static constexpr absl::Duration kLookEvery = absl::Milliseconds(10);

  // True while the process is there that starts it, or is about to be, and the job is not.
  bool Holds(const std::string& entry_id) const {
    return !entry_id.empty() && IsLocked(TurnLockPath(state_dir_, entry_id)).value_or(false);
  }
  bool Waits(const std::string& entry_id) const {
    const absl::StatusOr<std::optional<Entry>> entry = batches_.FindEntry(entry_id);
    return entry.ok() && entry->has_value() && (*entry)->state == EntryState::kWaiting;
  }

  CommandContext& context_;
  BatchStore& batches_;
  const std::string state_dir_, own_path_;
  const Before before_;
};

class Starter {
 public:
  Starter(CommandContext& context, Holdings& holdings, RunStore& runs, BatchStore& batches,
          Batch batch, const BatchHost& host, std::string join, std::shared_ptr<Rental> task,
          Entry entry, Turn& turn)
      : context_(context),
        holdings_(holdings),
        runs_(runs),
        batches_(batches),
        batch_(std::move(batch)),
        host_(host),
        join_(std::move(join)),
        task_(std::move(task)),
        entry_(std::move(entry)),
        turn_(turn) {}

  absl::Status Start() {
    LaunchFlags flags;
    absl::StatusOr<LaunchPlan> plan = Plan(flags);
    if (!plan.ok()) return Failed(plan.status());
    turn_.WaitForClaim();
    if (Turn::IsTakenBack()) return absl::OkStatus();
    const absl::Status claimed = Claim(*plan);
    if (absl::IsFailedPrecondition(claimed)) return absl::OkStatus();
    if (absl::IsResourceExhausted(claimed)) return WaitForMoney(claimed);
    RETURN_IF_ERROR(claimed);
    const std::string run_id = plan->row.run_id;
    const absl::StatusOr<int> code =
        LaunchRun(context_, holdings_, runs_, std::move(flags), *std::move(plan), UniqueFd(),
                  {[this](const std::function<bool()>& stopped) { turn_.WaitForJob(stopped); },
                   [this] { turn_.Done(); }});
    return Conclude(run_id, code);
  }

 private:
  bool rents() const { return host_.target_name.empty(); }
  bool joins() const { return !join_.empty(); }

  absl::StatusOr<LaunchPlan> Plan(LaunchFlags& flags) {
    ASSIGN_OR_RETURN(LaunchRecord record, ParseLaunchRecord(entry_.launch_json));
    flags.include = record.include;
    flags.leave_out = record.leave_out;
    flags.no_workdir = record.no_workdir;
    flags.pull_dir = record.pull_dir;
    flags.tags = batch_.tags;
    flags.note = DescribeParameters(entry_.parameters).substr(0, kMostOfNote);
    flags.detach = flags.yes = true;
    flags.rented = task_;
    RunSpec spec = std::move(record.spec);
    own_max_price_ = spec.max_price_usd_per_hour.has_value();
    if (!rents()) {
      ForOwnMachine(host_, flags, spec);
    } else if (batch_.agreed_usd_per_hour > 0) {
      spec.max_price_usd_per_hour =
          std::min(spec.max_price_usd_per_hour.value_or(batch_.agreed_usd_per_hour),
                   batch_.agreed_usd_per_hour);
    }
    if (joins()) return PlanToJoin(flags, std::move(spec));
    if (absl::StartsWith(host_.host, kOnMachine)) return PlanOnMachine(flags, std::move(spec));
    ASSIGN_OR_RETURN(LaunchPlan plan, PlanLaunch(context_, holdings_, flags, std::move(spec),
                                                 /*machines=*/{}, /*resume=*/{}));
    if (plan.rents != rents()) {
      return absl::UnavailableError(absl::StrCat(entry_.name, " has no machine to rent"));
    }
    plan.agreed_usd_per_hour = batch_.agreed_usd_per_hour;
    if (plan.rents) PreferIdle(plan);
    return plan;
  }

  // Plans the run on a rented machine that runs of this or of another batch have. Its limits become
  // what this run needs from now on, and never less than they are.
  absl::StatusOr<LaunchPlan> PlanToJoin(const LaunchFlags& flags, RunSpec spec) {
    absl::StatusOr<NamedMachine> machine = FindMachineOf(context_, holdings_, runs_, join_);
    if (!machine.ok() || !machine->lease.has_value()) {
      return WithCause(absl::UnavailableError(absl::StrCat("the machine ", join_, " is gone")),
                       kMachineTaken);
    }
    ASSIGN_OR_RETURN(LaunchPlan plan, PlanLaunch(context_, holdings_, flags, std::move(spec),
                                                 {machine->target}, /*resume=*/{}));
    plan.joined = machine->lease;
    ASSIGN_OR_RETURN(const std::vector<Attempt> attempts, batches_.Attempts(batch_.batch_id));
    join_cost_ = CostOfJoining(plan.spec, *plan.joined, attempts, context_.NowMs());
    plan.joined->limits = join_cost_.limits;
    return plan;
  }

  // Plans the run on a machine that is there, with its limits as they are.
  absl::StatusOr<LaunchPlan> PlanOnMachine(LaunchFlags flags, RunSpec spec) {
    absl::StatusOr<NamedMachine> machine =
        FindMachineOf(context_, holdings_, runs_, host_.target_name);
    // One that has ended does not come back.
    if (absl::IsFailedPrecondition(machine.status()) || absl::IsNotFound(machine.status())) {
      return WithExitCode(machine.status(), kExitNotFound);
    }
    RETURN_IF_ERROR(machine.status());
    flags.target = TargetFlags();
    ASSIGN_OR_RETURN(LaunchPlan plan, PlanLaunch(context_, holdings_, flags, std::move(spec),
                                                 {machine->target}, /*resume=*/{}));
    plan.joined = std::move(machine->lease);
    return plan;
  }

  // Uses an idle machine of ours, and only that, when there is one: a machine that waits and bills
  // must not hold up the batch's money.
  void PreferIdle(LaunchPlan& plan) {
    if (!plan.rental.idle.has_value()) return;
    idle_lease_ = plan.rental.idle->lease_id;
    plan.rental.in_order.clear();
    plan.rental.nothing_offered = WithCause(
        absl::UnavailableError("the idle machine for it was taken by another run"), kMachineTaken);
  }

  absl::Status Claim(const LaunchPlan& plan) {
    ClaimRequest request;
    request.entry_id = entry_.entry_id;
    request.run_id = plan.row.run_id;
    if (!plan.rents) {
      request.machine = plan.own_machine.name;
      request.shares = entry_.gpus >= 0;
      if (!joins()) return batches_.Claim(request);
    }
    request.task = task_ != nullptr;
    request.reserved_usd = join_cost_.reserved_usd;
    if (joins()) {
      ASSIGN_OR_RETURN(Ledger* const ledger, holdings_.OpenLedger());
      const absl::Status others = CheckOthersOn(batches_, *ledger, *plan.joined, batch_.batch_id,
                                                join_cost_.more_usd, context_.NowMs());
      others_refuse_ = !others.ok();
      RETURN_IF_ERROR(others);
    }
    if (!joins()) {
      // An idle machine has its price already; one that is rented may cost what was agreed to.
      const double price =
          idle_lease_.empty() ? std::max(PriceOf(plan), plan.agreed_usd_per_hour) : PriceOf(plan);
      request.reserved_usd = AgreeLimits(plan.spec, price).cost_usd;
    }
    // What a lease costs only falls below what it may cost; a run that is claimed meanwhile counts
    // with what is reserved for it.
    ASSIGN_OR_RETURN(const std::vector<Lease> leases, LeasesOfBatch());
    const int64_t now_ms = context_.NowMs();
    request.check_cost = [&](double max_cost_usd, const std::vector<Attempt>& attempts) {
      return CheckBudget(max_cost_usd, MoneyOf(attempts, leases, now_ms, idle_lease_).committed(),
                         request.reserved_usd);
    };
    return batches_.Claim(request);
  }

  absl::StatusOr<std::vector<Lease>> LeasesOfBatch() {
    ASSIGN_OR_RETURN(Ledger* const ledger, holdings_.OpenLedger());
    ASSIGN_OR_RETURN(const std::vector<Attempt> attempts, batches_.Attempts(batch_.batch_id));
    return LeasesOf(*ledger, attempts);
  }

  absl::Status WaitForMoney(const absl::Status& why) {
    // It gets a machine of its own instead of this one of another batch.
    if (joins() && (others_refuse_ || !join_cost_.held)) {
      return batches_.SetWaiting(entry_.entry_id, why.message(),
                                 context_.NowMs() + absl::ToInt64Milliseconds(kTakenWait),
                                 /*failed=*/true);
    }
    return batches_.SetHost(batch_.batch_id, host_.target_name, why.message(),
                            context_.NowMs() + absl::ToInt64Milliseconds(kMoneyWait), 1);
  }

  // Records what became of the launch.
  absl::Status Conclude(const std::string& run_id, const absl::StatusOr<int>& code) {
    entry_.run_id = run_id;
    // An entry whose node cannot be asked stays claimed, and a later pass settles it.
    RETURN_IF_ERROR(SettleClaim(context_, runs_, batches_, entry_));
    ASSIGN_OR_RETURN(const std::optional<Entry> now, batches_.FindEntry(entry_.entry_id));
    if (now.has_value() && now->state == EntryState::kStarted) {
      return batches_.SetHost(batch_.batch_id, host_.target_name, "", 0, 0);
    }
    if (!code.ok()) return Failed(code.status());
    const absl::StatusOr<RunRow> row = runs_.Get(run_id);
    return Failed(absl::UnknownError(row.ok() && row->end.has_value() ? row->end->reason
                                                                      : "nothing was started"));
  }

  // Lets the entry wait after a failed start, or gives it up. It is not claimed.
  absl::Status Failed(const absl::Status& status) {
    const int64_t now_ms = context_.NowMs();
    std::string why(status.message());
    if (rents() && CauseOf(status) == kPriceLimit && !own_max_price_) {
      why += "; the same submit again with --max-price allows more";
    } else if (rents() && CauseOf(status) == kBadMachine) {
      why += "; its place is left out for a while, and a later try takes another one";
    }
    context_.Warn(absl::StrCat(entry_.name, ": ", why));
    if (CauseOf(status) == kMachineTaken) {
      return batches_.SetWaiting(entry_.entry_id, why,
                                 now_ms + absl::ToInt64Milliseconds(kTakenWait), /*failed=*/false);
    }
    const Fault fault = FaultOfStart(status);
    if (joins() && fault != Fault::kEntry) {
      return batches_.SetWaiting(entry_.entry_id, why,
                                 now_ms + absl::ToInt64Milliseconds(kTakenWait),
                                 /*failed=*/true);
    }
    const bool own = fault == Fault::kUnknown && ExitCodeOf(status) != kExitInterrupted;
    if (fault == Fault::kMachine) {
      RETURN_IF_ERROR(batches_.SetHost(batch_.batch_id, host_.target_name, why,
                                       NextTryMs(now_ms, host_.failures), host_.failures + 1));
    }
    if (fault == Fault::kEntry || (own && entry_.failures + 1 >= kMostFailures)) {
      return batches_.EndWaiting(entry_.entry_id, EntryState::kFailed, why).status();
    }
    return batches_.SetWaiting(entry_.entry_id, why, own ? NextTryMs(now_ms, entry_.failures) : 0,
                               own);
  }

  static constexpr size_t kMostOfNote = 4096;
  CommandContext& context_;
  Holdings& holdings_;
  RunStore& runs_;
  BatchStore& batches_;
  const Batch batch_;
  const BatchHost host_;
  const std::string join_;              // the rented machine that it shares; "" for none
  const std::shared_ptr<Rental> task_;  // that was rented for it before; null for none
  Entry entry_;
  Turn& turn_;
  JoinCost join_cost_;          // on that one
  bool own_max_price_ = false;  // of its run file, which a submit does not change
  bool others_refuse_ = false;  // other batches on it cannot pay for that
  std::string idle_lease_;      // of the idle machine that the plan uses; "" for none
};

// Returns the machine that was rented for the entry; null where `lease_id` is "".
absl::StatusOr<std::shared_ptr<Rental>> TaskOf(CommandContext& context, Holdings& holdings,
                                               const std::string& lease_id) {
  if (lease_id.empty()) return std::shared_ptr<Rental>();
  UniqueFd passed(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
  if (!passed.valid()) return ErrnoStatus(errno, "take over the lock of a task");
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(LeaseLock lock,
                   LeaseLock::TakeOver(paths.state_dir, lease_id, std::move(passed)));
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.OpenLedger());
  ASSIGN_OR_RETURN(Lease lease, ledger->Get(lease_id));
  Instance instance;
  instance.id = lease.instance_id;
  instance.label = lease.label;
  return std::make_shared<Rental>(Rental{std::move(lease), std::move(instance), std::move(lock)});
}

// Does what StartEntry says. The caller holds the entry's lock.
absl::Status StartLocked(CommandContext& context, Holdings& holdings, RunStore& runs,
                         BatchStore& batches, const StartOrder& order, Turn& turn) {
  ASSIGN_OR_RETURN(std::shared_ptr<Rental> task, TaskOf(context, holdings, order.task));
  ASSIGN_OR_RETURN(std::optional<Entry> entry, batches.FindEntry(order.entry_id));
  if (!entry.has_value()) return absl::NotFoundError(absl::StrCat("no entry ", order.entry_id));
  if (entry->state != EntryState::kWaiting) return absl::OkStatus();
  ASSIGN_OR_RETURN(Batch batch, batches.WithId(entry->batch_id));
  const auto found =
      std::find_if(batch.hosts.begin(), batch.hosts.end(),
                   [&order](const BatchHost& one) { return one.host == order.host; });
  if (found == batch.hosts.end()) {
    return absl::NotFoundError(absl::StrCat("batch ", batch.name, " has no machine ", order.host));
  }
  const BatchHost chosen = *found;
  return Starter(context, holdings, runs, batches, std::move(batch), chosen, order.join,
                 std::move(task), *std::move(entry), turn)
      .Start();
}

}  // namespace

int64_t NextTryMs(int64_t now_ms, int failures) {
  const absl::Duration wait =
      std::min(kLongestWait, kFirstWait * static_cast<double>(1 << std::min(failures, 10)));
  return now_ms + absl::ToInt64Milliseconds(wait);
}

absl::Status StartEntry(CommandContext& context, Holdings& holdings, RunStore& runs,
                        BatchStore& batches, const StartOrder& order) {
  const std::string& entry_id = order.entry_id;
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  const std::string lock_path = EntryLockPath(paths.state_dir, entry_id);
  RETURN_IF_ERROR(MakeDirectories(DirName(lock_path)));
  absl::StatusOr<UniqueFd> lock = TryRemovableLock(lock_path);
  const std::string turn_path = TurnLockPath(paths.state_dir, entry_id);
  const std::string log_path = EntryLogPath(paths.state_dir, entry_id);
  if (absl::IsUnavailable(lock.status())) {
    // The other process may be about to end, and has then removed its log before this one's was
    // made.
    struct stat log {};
    if (lstat(log_path.c_str(), &log) == 0 && log.st_size == 0) (void)file_ops::Unlink(log_path);
    RemoveOwnTurn(turn_path);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(lock.status());
  // What is not settled here, because this process died, SettleClaims settles.
  const absl::Cleanup done = [&] {
    RemoveOwnTurn(turn_path);
    RemoveLock(*std::move(lock), lock_path);
  };
  Turn turn(context, batches, paths.state_dir, entry_id, {order.behind, order.pays_after});
  const absl::Status started = StartLocked(context, holdings, runs, batches, order, turn);
  // Under the lock, so that it is no other process's log.
  if (started.ok()) (void)file_ops::Unlink(log_path);
  return started;
}

}  // namespace gpuctl
