#include "client/dispatch/dispatch_pass.h"

#include <fcntl.h>
#include <sys/wait.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/paths.h"
#include "client/base/quantity.h"
#include "client/batch/batch_budget.h"
#include "client/batch/entry_spec.h"
#include "client/bill/lease_view.h"
#include "client/dispatch/due_schedules.h"
#include "client/dispatch/join_cost.h"
#include "client/dispatch/settle_claims.h"
#include "client/dispatch/start_array.h"
#include "client/dispatch/unresumed.h"
#include "client/follow/catch_up_all.h"
#include "client/follow/run_outcome.h"
#include "client/market/instance_target.h"
#include "client/rent/reuse_node.h"
#include "client/runs/run_status.h"
#include "client/spec/launch_record.h"
#include "client/terminal/console.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/process/process.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

// Starts of one pass at the same time.
constexpr size_t kStartsAtOnce = 8;
// A run of others that no node has accepted after this holds a machine up only until it is asked.
constexpr absl::Duration kLaunchTakes = absl::Minutes(2);
// What is tried again within this time is waited for.
constexpr int64_t kSoonMs = 2000;
constexpr absl::Duration kLookEvery = absl::Milliseconds(30);

bool IsOneOf(const std::vector<std::string>& names, const std::string& name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

// True when a run that goes on from it takes its place: it did not succeed by itself. One that was
// stopped may have saved, and ended with 0.
bool MayBeFollowed(const RunEnd& end) { return end.exit_code != 0 || end.cause != EndCause::kNone; }

// Follows the runs that others were resumed as.
class ResumedRuns {
 public:
  ResumedRuns(RunStore& runs, BatchStore& batches) : runs_(runs), batches_(batches) {}

  absl::Status Follow(Entry& entry, std::optional<RunRow>& run) {
    while (run.has_value() && run->end.has_value() && MayBeFollowed(*run->end) &&
           entry.state == EntryState::kStarted) {
      if (!resumed_.has_value()) {
        ASSIGN_OR_RETURN(resumed_, runs_.Resumptions());
      }
      const auto next = resumed_->find(run->run_id);
      if (next == resumed_->end()) return absl::OkStatus();
      RETURN_IF_ERROR(batches_.Follow(entry.entry_id, entry.run_id, next->second));
      entry.run_id = next->second;
      ++entry.followed;
      const absl::StatusOr<RunRow> row = runs_.Get(next->second);
      if (!row.ok()) return absl::OkStatus();
      run = *row;
    }
    return absl::OkStatus();
  }

 private:
  RunStore& runs_;
  BatchStore& batches_;
  std::optional<std::map<std::string, std::string>> resumed_;
};

// A run that a node stopped because it must not have started: the entry waits again.
absl::Status ReleaseRestarted(BatchStore& batches, Entry& entry, const std::optional<RunRow>& run) {
  if (entry.state != EntryState::kStarted || !run.has_value() || !run->end.has_value() ||
      run->end->reason != kStartsAgainReason) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(batches.Release(entry.entry_id, entry.run_id, "", 0, /*failed=*/false));
  entry.state = EntryState::kWaiting;
  return absl::OkStatus();
}

EntryOutcome OutcomeOf(const EntryView& view) {
  if (!view.over()) return EntryOutcome::kOpen;
  return view.phase == EntryPhase::kDone ? EntryOutcome::kSucceeded : EntryOutcome::kFailed;
}

EntryOutcome OutcomeOf(const RunRow& row) {
  if (!row.end.has_value()) return EntryOutcome::kOpen;
  return row.end->exit_code == 0 ? EntryOutcome::kSucceeded : EntryOutcome::kFailed;
}

// Returns what became of all that entries of the open batches come after.
absl::StatusOr<std::map<std::string, Dependency>> Dependencies(const std::vector<BatchView>& open,
                                                               RunStore& runs,
                                                               BatchStore& batches) {
  std::map<std::string, Dependency> found;
  std::set<std::string> wanted;
  for (const BatchView& batch : open) {
    for (const EntryView& view : batch.entries) {
      // An entry does not come after all of its own batch, so only others are named as a whole.
      found[absl::StrCat("entry:", view.entry.entry_id)] = {OutcomeOf(view), view.entry.name,
                                                            batch.batch.name, batch.entries.size()};
      wanted.insert(view.entry.after.begin(), view.entry.after.end());
    }
  }
  for (const std::string& reference : wanted) {
    if (found.count(reference) > 0) continue;
    const std::string id = reference.substr(reference.find(':') + 1);
    if (absl::StartsWith(reference, "run:")) {
      const absl::StatusOr<RunRow> row = runs.Get(id);
      if (row.ok()) found[reference] = {OutcomeOf(*row), row->name, "", 0};
      continue;
    }
    ASSIGN_OR_RETURN(std::optional<Entry> entry, batches.FindEntry(id));
    if (!entry.has_value()) continue;
    const absl::StatusOr<RunRow> row = runs.Get(entry->run_id);
    const EntryView view =
        ViewOf(*std::move(entry), row.ok() ? std::optional<RunRow>(*row) : std::nullopt);
    found[reference] = {OutcomeOf(view), view.entry.name, "", 0};
  }
  return found;
}

int GpusOfMachineFor(const Entry& entry) {
  const absl::StatusOr<LaunchRecord> record = ParseLaunchRecord(entry.launch_json);
  return record.ok() ? RentedGpus(record->spec) : 0;
}

// Returns the rented machines that runs of an open batch share, also those that are being rented.
absl::StatusOr<std::vector<SharedMachine>> SharedMachines(const std::vector<BatchView>& open,
                                                          Holdings& holdings) {
  std::vector<SharedMachine> shared;
  std::set<std::pair<std::string, std::string>> used;  // batch, machine
  for (const BatchView& batch : open) {
    if (!batch.batch.rents) continue;
    for (const EntryView& view : batch.entries) {
      if (!view.live() || view.entry.gpus < 0) continue;
      if (view.phase != EntryPhase::kStarting) {
        used.emplace(batch.batch.batch_id, view.run->target.name);
      } else if (view.entry.machine.empty()) {
        shared.push_back({batch.batch.batch_id, "", view.entry.name, GpusOfMachineFor(view.entry)});
      }
    }
  }
  if (used.empty()) return shared;
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.FindLedger());
  if (ledger == nullptr) return shared;
  ASSIGN_OR_RETURN(const std::vector<Lease> leases, ledger->List(/*open_only=*/true));
  for (const Lease& lease : leases) {
    const bool in_order = lease.state == LeaseState::kRented && lease.claimed_ms != 0 &&
                          lease.trouble_ms == 0 && !lease.address.host.empty();
    if (!in_order) continue;
    const std::string name = RentedNodeName(lease.provider, lease.instance_id);
    for (const auto& [batch_id, machine] : used) {
      if (machine == name) shared.push_back({batch_id, name, "", lease.gpu_count});
    }
  }
  return shared;
}

// Judges whether runs go to the machines of other batches, as they are at the moment.
class Joins {
 public:
  Joins(CommandContext& context, BatchStore& batches, Ledger* ledger, std::vector<Lease> leases)
      : now_ms_(context.NowMs()), batches_(batches), ledger_(ledger), leases_(std::move(leases)) {}

  bool May(const Batch& batch, const Entry& entry, const SharedMachine& machine) {
    // One that is preempted is resumed on a whole machine.
    if (entry.resumes > 0) return false;
    const absl::StatusOr<LaunchRecord> record = ParseLaunchRecord(entry.launch_json);
    if (!record.ok()) return false;
    for (const Lease& lease : leases_) {
      if (RentedNodeName(lease.provider, lease.instance_id) != machine.name) continue;
      if (!FitsRun(record->spec, lease, batch.agreed_usd_per_hour)) return false;
      return CheckMoney(batch, record->spec, lease).ok();
    }
    return false;
  }

 private:
  absl::Status CheckMoney(const Batch& batch, const RunSpec& spec, const Lease& lease) {
    ASSIGN_OR_RETURN(const std::vector<Attempt> attempts, batches_.Attempts(batch.batch_id));
    const JoinCost cost = CostOfJoining(spec, lease, attempts, now_ms_);
    if (batch.max_cost_usd.has_value()) {
      ASSIGN_OR_RETURN(const std::vector<Lease> leases, LeasesOf(*ledger_, attempts));
      RETURN_IF_ERROR(CheckBudget(
          *batch.max_cost_usd, MoneyOf(attempts, leases, now_ms_).committed(), cost.reserved_usd));
    }
    return CheckOthersOn(batches_, *ledger_, lease, batch.batch_id, cost.more_usd, now_ms_);
  }

  const int64_t now_ms_;
  BatchStore& batches_;
  Ledger* const ledger_;
  const std::vector<Lease> leases_;
};

absl::StatusOr<StartPlan> PlanNow(CommandContext& context, Holdings& holdings, RunStore& runs,
                                  BatchStore& batches) {
  ASSIGN_OR_RETURN(const std::vector<BatchView> open,
                   ReadBatches(runs, batches, {}, /*open_only=*/true));
  StartInputs inputs;
  ASSIGN_OR_RETURN(inputs.dependencies, Dependencies(open, runs, batches));
  ASSIGN_OR_RETURN(const std::vector<RunRow> live, runs.List(/*live_only=*/true));
  for (const RunRow& row : live) inputs.busy.emplace(row.target.name, row.name);
  ASSIGN_OR_RETURN(inputs.shared, SharedMachines(open, holdings));
  inputs.rented_gpus = GpusOfMachineFor;
  std::vector<Lease> leases;
  Ledger* ledger = nullptr;
  if (!inputs.shared.empty()) {
    ASSIGN_OR_RETURN(ledger, holdings.FindLedger());
  }
  if (ledger != nullptr) {
    ASSIGN_OR_RETURN(leases, ledger->List(/*open_only=*/true));
  }
  const auto joins = std::make_shared<Joins>(context, batches, ledger, std::move(leases));
  inputs.may_join = [joins](const Batch& batch, const Entry& entry, const SharedMachine& machine) {
    return joins->May(batch, entry, machine);
  };
  inputs.now_ms = context.NowMs();
  return PlanStarts(open, std::move(inputs));
}

// Ends the schedules of which so many runs failed that no more may start.
absl::Status EndSchedulesThatGiveUp(RunStore& runs, BatchStore& batches) {
  ASSIGN_OR_RETURN(const auto schedules, batches.Schedules());
  ASSIGN_OR_RETURN(const std::vector<Batch> open, batches.List(/*open_only=*/true));
  std::vector<std::string> names;
  for (const Batch& batch : open) {
    const auto schedule = schedules.find(batch.batch_id);
    const bool comes = schedule != schedules.end() && !schedule->second.ended;
    if (comes && batch.max_failures > 0) names.push_back(batch.name);
  }
  if (names.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<BatchView> views,
                   ReadBatches(runs, batches, names, /*open_only=*/true));
  for (const BatchView& view : views) {
    if (view.gives_up()) RETURN_IF_ERROR(batches.EndSchedule(view.batch.batch_id).status());
  }
  return absl::OkStatus();
}

// The processes that start entries.
class Starts {
 public:
  explicit Starts(std::string state_dir) : state_dir_(std::move(state_dir)) {}

  // Begins the picks that become one array.
  absl::Status BeginArray(const std::vector<StartPick>& picks) {
    std::vector<std::string> entry_ids;
    for (const StartPick& pick : picks) entry_ids.push_back(pick.entry_id);
    SpawnOptions options;
    options.argv = {ExecutablePath(), "queue", "--start-array", absl::StrJoin(entry_ids, ",")};
    options.new_session = true;
    const std::string log_path = EntryLogPath(state_dir_, picks.front().batch_id);
    RETURN_IF_ERROR(MakeDirectories(DirName(log_path)));
    const UniqueFd log(file_ops::Open(log_path, O_WRONLY | O_CREAT | O_TRUNC, 0600));
    options.stderr_fd = log.get();
    ASSIGN_OR_RETURN(const pid_t pid, Spawn(options));
    running_[pid] = picks.front().batch_id;
    begun_.insert(picks.front().batch_id);
    return absl::OkStatus();
  }

  absl::Status Begin(const StartPick& pick) {
    SpawnOptions options;
    options.argv = {ExecutablePath(), "queue",   "--start-entry", pick.entry_id,
                    "--on",           pick.host, "--join",        pick.join};
    if (!pick.behind.empty()) {
      options.argv.insert(options.argv.end(), {"--behind", pick.behind});
    }
    if (!pick.pays_after.empty()) {
      options.argv.insert(options.argv.end(), {"--pays-after", pick.pays_after});
    }
    // A process that is left over has it still; then the new one does nothing either.
    absl::StatusOr<UniqueFd> turn = TryRemovableLock(TurnLockPath(state_dir_, pick.entry_id));
    if (turn.ok()) options.stdin_fd = turn->get();
    options.new_session = true;
    // What becomes of the entry is in the list of batches. The log is for errors of the process,
    // which removes it when it had none.
    const std::string log_path = EntryLogPath(state_dir_, pick.entry_id);
    RETURN_IF_ERROR(MakeDirectories(DirName(log_path)));
    const UniqueFd log(file_ops::Open(log_path, O_WRONLY | O_CREAT | O_APPEND, 0600));
    options.stderr_fd = log.get();
    ASSIGN_OR_RETURN(const pid_t pid, Spawn(options));
    running_[pid] = pick.entry_id;
    begun_.insert(pick.entry_id);
    return absl::OkStatus();
  }

  // Takes note of those that have ended. True when there was one.
  bool Reap() {
    bool any = false;
    for (auto one = running_.begin(); one != running_.end();) {
      int status = 0;
      const bool ended = waitpid(one->first, &status, WNOHANG) == one->first;
      any = any || ended;
      one = ended ? running_.erase(one) : std::next(one);
    }
    return any;
  }

  bool MayBegin(const StartPick& pick) const {
    return running_.size() < kStartsAtOnce &&
           begun_.count(pick.task ? pick.batch_id : pick.entry_id) == 0;
  }
  bool none() const { return running_.empty(); }

 private:
  const std::string state_dir_;
  std::map<pid_t, std::string> running_;  // ids of entries, and of batches for arrays
  std::set<std::string> begun_;           // each of them once in a pass
};

// Returns the picks that become arrays, by batch.
std::map<std::string, std::vector<StartPick>> ArraysOf(const std::vector<StartPick>& picks) {
  std::map<std::string, std::vector<StartPick>> arrays;
  for (const StartPick& pick : picks) {
    if (pick.task) arrays[pick.batch_id].push_back(pick);
  }
  return arrays;
}

// Says on stderr which machines a pass rents, and for how much, and whose limits it raises.
class Rentals {
 public:
  Rentals(CommandContext& context, Holdings& holdings, BatchStore& batches)
      : context_(context), holdings_(holdings), batches_(batches) {}

  void Begin(const StartPick& pick) {
    if (pick.host.empty()) untold_.push_back(pick.entry_id);
  }

  void BeginArray(const std::vector<StartPick>& picks) { arrays_.push_back(picks); }

  // Tells of those that have begun since the last call. What cannot be read is not told.
  void Tell() {
    arrays_.erase(std::remove_if(arrays_.begin(), arrays_.end(),
                                 [this](const auto& picks) { return TellOfArray(picks); }),
                  arrays_.end());
    untold_.erase(std::remove_if(untold_.begin(), untold_.end(),
                                 [this](const std::string& entry_id) { return TellOf(entry_id); }),
                  untold_.end());
  }

 private:
  // The same, as soon as one of its runs has its task.
  bool TellOfArray(const std::vector<StartPick>& picks) {
    for (const StartPick& pick : picks) {
      const absl::StatusOr<std::optional<Entry>> entry = batches_.FindEntry(pick.entry_id);
      if (!entry.ok() || !entry->has_value() || (*entry)->run_id.empty()) continue;
      const absl::StatusOr<std::optional<Lease>> lease = holdings_.LeaseOf((*entry)->run_id);
      if (!lease.ok() || !lease->has_value()) continue;
      context_.Say(DescribeArray(**lease));
      return true;
    }
    return false;
  }

  // Returns true when there is nothing more to tell.
  bool TellOf(const std::string& entry_id) {
    const absl::StatusOr<std::optional<Entry>> entry = batches_.FindEntry(entry_id);
    if (!entry.ok() || !entry->has_value()) return true;
    const bool claimed =
        (*entry)->state == EntryState::kStarting || (*entry)->state == EntryState::kStarted;
    if (!claimed) return false;
    const absl::StatusOr<std::optional<Lease>> lease = holdings_.LeaseOf((*entry)->run_id);
    if (!lease.ok() || !lease->has_value()) return false;
    const Lease& of = **lease;
    if (of.uses.size() > 1) {  // it was rented before, and bills anyway
      if (const std::string raise = DescribeRaiseBy(of, (*entry)->run_id); !raise.empty()) {
        context_.Say(absl::StrCat((*entry)->name, " ", raise));
      }
      return true;
    }
    context_.Say(absl::StrCat("renting ", FormatGpus(of.gpu_name, of.gpu_count), " at ",
                              of.provider, " for ", (*entry)->name, ", ",
                              FormatUsd(of.usd_per_hour()), "/h"));
    return true;
  }

  CommandContext& context_;
  Holdings& holdings_;
  BatchStore& batches_;
  std::vector<std::string> untold_;             // entry ids
  std::vector<std::vector<StartPick>> arrays_;  // untold, too
};

}  // namespace

absl::StatusOr<std::vector<BatchView>> ReadBatches(RunStore& runs, BatchStore& batches,
                                                   const std::vector<std::string>& names,
                                                   bool open_only) {
  ASSIGN_OR_RETURN(const std::vector<Batch> all,
                   open_only || names.empty() ? batches.List(open_only) : batches.Named(names));
  ASSIGN_OR_RETURN(const auto schedules, batches.Schedules());
  ResumedRuns resumed(runs, batches);
  std::vector<BatchView> views;
  std::vector<Entry> ended;
  for (const Batch& batch : all) {
    if (!IsOneOf(names, batch.name)) continue;
    BatchView& view = views.emplace_back();
    view.batch = batch;
    if (const auto one = schedules.find(batch.batch_id); one != schedules.end()) {
      view.schedule = one->second;
    }
    ASSIGN_OR_RETURN(std::vector<Entry> entries, batches.Entries(batch.batch_id));
    std::set<std::string> run_ids;
    for (const Entry& entry : entries) run_ids.insert(entry.run_id);
    ASSIGN_OR_RETURN(const auto by_id, runs.Find(run_ids));
    for (Entry& entry : entries) {
      std::optional<RunRow> run;
      if (const auto found = by_id.find(entry.run_id); found != by_id.end()) run = found->second;
      RETURN_IF_ERROR(resumed.Follow(entry, run));
      RETURN_IF_ERROR(ReleaseRestarted(batches, entry, run));
      EntryView& one = view.entries.emplace_back(ViewOf(std::move(entry), std::move(run)));
      if (!one.over() || !one.run.has_value() || one.entry.state != EntryState::kStarted) continue;
      if (one.entry.outcome == EntryPhaseWord(one.phase)) continue;
      one.entry.outcome = EntryPhaseWord(one.phase);
      ended.push_back(one.entry);
    }
  }
  RETURN_IF_ERROR(batches.SetOutcomes(ended));
  return views;
}

void MarkQueued(CommandContext& context, std::vector<BatchView>& views) {
  for (BatchView& batch : views) {
    for (EntryView& view : batch.entries) {
      const bool may_wait = view.phase == EntryPhase::kRunning && !view.run->end.has_value();
      const bool in_scheduler = may_wait && view.run->target.provider == kClusterProvider;
      if (!may_wait || (view.entry.gpus < 0 && !in_scheduler)) continue;
      const absl::StatusOr<RunStatus> status = MirroredStatus(context, *view.run);
      if (!status.ok() || status->phase != RunPhase::kQueued) continue;
      view.phase = EntryPhase::kQueued;
      view.why =
          in_scheduler && status->queue.has_value()
              ? DescribeQueue(*status->queue)
              : absl::StrCat("waits for GPUs of ", view.run->target.name, ", which starts it");
    }
  }
}

absl::StatusOr<std::map<std::string, std::string>> WhyTheyWait(CommandContext& context,
                                                               Holdings& holdings, RunStore& runs,
                                                               BatchStore& batches) {
  ASSIGN_OR_RETURN(StartPlan plan, PlanNow(context, holdings, runs, batches));
  return std::move(plan.waits);
}

absl::StatusOr<bool> AskMachines(CommandContext& context, RunStore& runs, BatchStore& batches,
                                 absl::Duration limit, bool tell) {
  ASSIGN_OR_RETURN(const std::vector<Batch> open, batches.List(/*open_only=*/true));
  if (open.empty()) return false;
  std::set<std::string> machines, run_ids;
  for (const Batch& batch : open) {
    for (const BatchHost& host : batch.hosts) machines.insert(host.target_name);
    ASSIGN_OR_RETURN(const std::vector<Attempt> attempts, batches.Attempts(batch.batch_id));
    for (const Attempt& attempt : attempts) run_ids.insert(attempt.run_id);
  }
  ASSIGN_OR_RETURN(std::vector<RunRow> listed, runs.List(/*live_only=*/true));
  auto kept_rows = std::make_unique<std::vector<RunRow>>(std::move(listed));
  std::vector<RunRow>& rows = *kept_rows;
  // A run without acceptance is being started; one of a batch is settled elsewhere.
  const int64_t recent_ms = context.NowMs() - absl::ToInt64Milliseconds(kLaunchTakes);
  const auto unasked = [&](const RunRow& row) {
    if (run_ids.count(row.run_id) > 0) return row.accepted_ms == 0;
    return machines.count(row.target.name) == 0 ||
           (row.accepted_ms == 0 && row.created_ms > recent_ms);
  };
  rows.erase(std::remove_if(rows.begin(), rows.end(), unasked), rows.end());
  if (rows.empty()) return false;
  auto work = std::make_unique<CatchUpAll>(context, runs, rows);
  const absl::StatusOr<std::vector<CaughtRun>> caught = work->Run(limit);
  const absl::Status asked = caught.status();
  if (tell && caught.ok()) TellOfCaughtRuns(context, rows, *caught);
  if (!work->stuck()) {
    RETURN_IF_ERROR(asked);
    return false;
  }
  if (!asked.ok()) ExitAtOnce(context, asked);
  // A thread uses them until this process ends.
  static_cast<void>(work.release());
  static_cast<void>(kept_rows.release());
  return true;
}

absl::Status StartEntries(CommandContext& context, Holdings& holdings, RunStore& runs,
                          BatchStore& batches, absl::Duration patience) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  RETURN_IF_ERROR(MakeDirectories(JoinPath(paths.state_dir, "locks")));
  RETURN_IF_ERROR(SettleClaims(context, runs, batches));
  ASSIGN_OR_RETURN(const std::vector<BatchView> open,
                   ReadBatches(runs, batches, {}, /*open_only=*/true));
  RETURN_IF_ERROR(EndUnresumed(context, runs, batches, open));
  Starts starts(paths.state_dir);
  Rentals rentals(context, holdings, batches);
  const absl::Duration end = context.clock.SinceBoot() + patience;
  bool look = true;
  int64_t retry_ms = 0;
  while (true) {
    if (look) {
      RETURN_IF_ERROR(EndSchedulesThatGiveUp(runs, batches));
      RETURN_IF_ERROR(MakeDueEntries(context, batches));
      ASSIGN_OR_RETURN(const StartPlan plan, PlanNow(context, holdings, runs, batches));
      for (const auto& [entry_id, why] : plan.cancels) {
        RETURN_IF_ERROR(batches.EndWaiting(entry_id, EntryState::kCancelled, why).status());
      }
      for (const auto& [batch_id, picks] : ArraysOf(plan.starts)) {
        if (!starts.MayBegin(picks.front())) continue;
        RETURN_IF_ERROR(starts.BeginArray(picks));
        rentals.BeginArray(picks);
      }
      for (const StartPick& pick : plan.starts) {
        if (pick.task || !starts.MayBegin(pick)) continue;
        RETURN_IF_ERROR(starts.Begin(pick));
        rentals.Begin(pick);
      }
      retry_ms = plan.retry_ms;
    }
    rentals.Tell();
    // One that another run took a machine from is tried again at once.
    const bool soon = retry_ms > 0 && retry_ms - context.NowMs() <= kSoonMs;
    if ((starts.none() && !soon) || context.clock.SinceBoot() >= end) return absl::OkStatus();
    context.clock.SleepFor(kLookEvery);
    look = starts.Reap() || (soon && context.NowMs() >= retry_ms);
  }
}

}  // namespace gpuctl
