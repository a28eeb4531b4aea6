// gpuctl down: stop a run's job, then give its rented machine back. On local and ssh nothing is
// rented, so it only stops the job.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/bill/lease_view.h"
#include "client/bill/run_machines.h"
#include "client/cluster/allocation.h"
#include "client/due/findings.h"
#include "client/due/node_terms.h"
#include "client/follow/catch_up.h"
#include "client/follow/live_now.h"
#include "client/follow/members.h"
#include "client/follow/run_outcome.h"
#include "client/follow/stop_run.h"
#include "client/home/not_home.h"
#include "client/home/other_parts.h"
#include "client/keys/unused_logins.h"
#include "client/market/holdings.h"
#include "client/market/instance_target.h"
#include "client/market/machine_users.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/rent/interruptible_hooks.h"
#include "client/runs/context.h"
#include "client/runs/find_run.h"
#include "client/runs/given_up.h"
#include "client/runs/pulled_record.h"
#include "client/runs/run_end.h"
#include "client/runs/run_status.h"
#include "client/terminal/console.h"
#include "client/terminal/shown_name.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/down_losses.h"
#include "client/verbs/down_text.h"
#include "client/verbs/remove_runs.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "client/warm/warm_socket.h"
#include "client/wishes/held_wish.h"
#include "common/base/status_macros.h"
#include "provisioning/markets.h"
#include "provisioning/rental/account.h"

namespace gpuctl {
namespace {

constexpr absl::string_view kNobodyToAsk =
    "down asks before it ends a job or a machine, and there is nobody to ask";

// The runs and machines that the command line names.
struct Plan {
  std::vector<RunRow> runs;  // on machines that are not rented
  std::vector<Lease> leases;
  std::vector<std::pair<std::string, InstanceId>> strangers;  // at a market, in no lease
};

class Down {
 public:
  Down(CommandContext& context, RunStore& store, bool yes, bool force)
      : context_(context), store_(store), yes_(yes), force_(force), holdings_(context) {
    holdings_.OnlyEnds();
  }

  absl::StatusOr<Plan> MakePlan(const std::vector<std::string>& references, bool all);
  // The same for the runs of a batch.
  absl::StatusOr<Plan> PlanBatch(const std::string& batch);
  // Takes out of the batch what waits, if the user wants that: else it rents again.
  absl::Status CancelWaiting(const std::string& name);
  absl::Status StopRuns(std::vector<RunRow>& runs);
  // With `all`, also looks for machines of ours that the ledger does not know, and tells of them.
  absl::Status ReleaseAll(const std::vector<Lease>& leases, bool all);
  // Ends instances of the account that the ledger does not know, by the market's word alone.
  absl::Status EndStrangers(const std::vector<std::pair<std::string, InstanceId>>& strangers);
  // Says what was ended; when nothing was, says what bills on.
  absl::Status PrintResult(bool rented, bool all) const;
  void TellSchedules() const { TellOfSchedules(context_, ended_); }
  int code() const { return code_; }

 private:
  absl::Status AddRun(RunRow row, Plan& plan);
  absl::Status StopOne(RunRow& row);
  void GiveUp(const RunRow& row);
  void NoteGivenUp(const RunRow& row);
  // Records the end of a run whose end nobody saw.
  absl::Status RecordGivenBack(RunRow& row);
  absl::StatusOr<bool> AddInstance(std::string reference, Plan& plan);
  absl::Status LeaveShared(Plan& plan);
  // Ends the machine. Asks first, unless `agreed` has what was told when the user was asked.
  absl::Status ReleaseOne(const Lease& lease, const NotHomeOn* agreed);
  // Asks once about several machines. Returns what was told of each, by lease id; nothing when the
  // user does not want it.
  absl::StatusOr<std::optional<std::map<std::string, NotHomeOn>>> AgreeToAll(
      const std::vector<Lease>& leases);
  // Asks once about several runs on machines that are not rented.
  absl::StatusOr<bool> AgreeToStop(const std::vector<RunRow>& runs);
  absl::Status StopJobsOn(const Lease& lease);
  absl::StatusOr<bool> Agreed(const std::string& question, const std::string& name);
  std::string NothingEnded(bool all, bool open) const;
  bool LeavesALeak() const;
  LossFinder losses() { return {context_, store_, holdings_, found_}; }
  // True when another process holds the lease's lock.
  bool IsAtWork(const Lease& lease) {
    return LeaseLock::IsHeld(holdings_.ledger().state_dir(), lease.lease_id).value_or(false);
  }

  CommandContext& context_;
  RunStore& store_;
  const bool yes_, force_;
  Holdings holdings_;
  Ledger* ledger_ = nullptr;  // null when nothing was ever rented
  // What the markets showed; absent: they were not asked.
  std::optional<Reconciliation> found_;
  std::set<std::string> lease_ids_;
  std::set<std::string> named_;  // ids of the runs on the command line
  std::set<std::string> ended_;  // ids of the runs that were ended, or had a machine that was
  bool all_ = false;
  std::vector<std::pair<RunRow, Lease>> on_leases_;  // the named runs that have rented machines
  std::vector<nlohmann::ordered_json> runs_json_, instances_json_, kept_json_;
  bool asked_to_stop_ = false;  // the user has agreed to stop all runs
  int code_ = kExitOk;
};

// Ends no machine of the named runs on which another run is live that is not named.
absl::Status Down::LeaveShared(Plan& plan) {
  std::set<std::string> left;  // lease ids
  for (auto& [row, lease] : on_leases_) {
    if (lease_ids_.count(lease.lease_id) > 0 || left.count(lease.lease_id) > 0) continue;
    ASSIGN_OR_RETURN(const std::vector<std::string> others,
                     LiveNowOn(context_, store_, lease, named_));
    if (others.empty()) {
      lease_ids_.insert(lease.lease_id);
      plan.leases.push_back(std::move(lease));
      continue;
    }
    left.insert(lease.lease_id);
    context_.Warn(absl::StrCat(row.end.has_value() ? absl::StrCat(row.name, " is over, and ") : "",
                               lease.provider, "/", lease.instance_id, " stays: ", FirstFew(others),
                               others.size() == 1 ? " uses it now" : " use it now"));
    context_.Hint(absl::StrCat(
        row.end.has_value() ? "" : absl::StrCat("gpuctl stop ", row.name, " ends that job alone; "),
        "gpuctl down ", RentedNodeName(lease.provider, lease.instance_id), " ends the machine for ",
        others.size() == 1 ? "both" : "all"));
    code_ = kExitFailed;
  }
  return absl::OkStatus();
}

absl::Status Down::AddRun(RunRow row, Plan& plan) {
  if (ledger_ == nullptr) {
    plan.runs.push_back(std::move(row));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::optional<Lease> of_part, LeaseOfPart(*ledger_, row));
  // A part of a run whose machines are rented goes with all of it.
  if (of_part.has_value() && of_part->open() && !row.leader.empty()) {
    ASSIGN_OR_RETURN(row, store_.Get(row.leader));
  }
  ASSIGN_OR_RETURN(RunMachines machines, MachinesOfRun(*ledger_, store_, row));
  if (!AnyOpen(machines)) {
    plan.runs.push_back(std::move(row));
    return absl::OkStatus();
  }
  for (auto& [lease, part] : machines) {
    if (!all_) named_.insert(part);
    if (!lease.open()) continue;
    if (!all_) {
      on_leases_.emplace_back(row, std::move(lease));
    } else if (lease_ids_.insert(lease.lease_id).second) {
      plan.leases.push_back(std::move(lease));
    }
  }
  return absl::OkStatus();
}

// Adds the machine with this provider's id, our label or lease id, or PROVIDER/ID. Returns false
// when there is none.
absl::StatusOr<bool> Down::AddInstance(std::string reference, Plan& plan) {
  // A node of an allocation goes with all of it.
  if (const auto node = ParseAllocationName(reference); node.has_value()) {
    reference = RentedNodeName(kClusterProvider, node->job);
  }
  std::vector<Lease> open;
  if (ledger_ != nullptr) {
    ASSIGN_OR_RETURN(open, ledger_->List(/*open_only=*/true));
  }
  bool found = false;
  for (Lease& lease : open) {
    if (reference != lease.instance_id && reference != lease.label && reference != lease.lease_id &&
        reference != RentedNodeName(lease.provider, lease.instance_id)) {
      continue;
    }
    found = true;
    if (lease_ids_.insert(lease.lease_id).second) plan.leases.push_back(std::move(lease));
  }
  const std::pair<std::string, std::string> name =
      absl::StrSplit(reference, absl::MaxSplits('/', 1));
  if (found || name.second.empty() || !CheckMarketName(name.first).ok()) return found;
  plan.strangers.push_back(name);
  return true;
}

absl::StatusOr<Plan> Down::MakePlan(const std::vector<std::string>& references, bool all) {
  all_ = all;
  ASSIGN_OR_RETURN(ledger_, holdings_.FindLedger());
  Plan plan;
  if (all) {
    if (ledger_ != nullptr) {
      ASSIGN_OR_RETURN(plan.leases, ledger_->List(/*open_only=*/true));
      for (const Lease& lease : plan.leases) lease_ids_.insert(lease.lease_id);
    }
    ASSIGN_OR_RETURN(std::vector<RunRow> live, store_.List(/*live_only=*/true));
    std::set<std::string> live_ids;
    for (RunRow& row : live) {
      live_ids.insert(row.run_id);
      RETURN_IF_ERROR(AddRun(std::move(row), plan));
    }
    // Parts of runs on several machines whose first part is over, as far as is known here.
    RunFilter members;
    members.live_only = members.members = true;
    ASSIGN_OR_RETURN(std::vector<RunRow> left, store_.List(members));
    for (RunRow& row : left) {
      if (live_ids.count(row.leader) == 0) plan.runs.push_back(std::move(row));
    }
    return plan;
  }
  for (const std::string& reference : references) {
    ASSIGN_OR_RETURN(const bool instance, AddInstance(reference, plan));
    if (instance) continue;
    ASSIGN_OR_RETURN(RunRow row, store_.Get(reference));
    named_.insert(row.run_id);
    RETURN_IF_ERROR(AddRun(std::move(row), plan));
  }
  RETURN_IF_ERROR(LeaveShared(plan));
  return plan;
}

absl::Status Down::CancelWaiting(const std::string& name) {
  ASSIGN_OR_RETURN(const std::unique_ptr<BatchStore> batches, OpenBatches(context_));
  ASSIGN_OR_RETURN(const Batch batch, batches->Get(name));
  ASSIGN_OR_RETURN(const std::vector<Entry> entries, batches->Entries(batch.batch_id));
  std::vector<std::string> waiting;
  for (const Entry& entry : entries) {
    if (entry.state == EntryState::kWaiting) waiting.push_back(entry.entry_id);
  }
  if (waiting.empty()) return absl::OkStatus();
  const std::string runs = absl::StrCat(waiting.size(), waiting.size() == 1 ? " run" : " runs");
  if (!yes_) {
    ASSIGN_OR_RETURN(
        const bool agreed,
        context_.AskYesNo(absl::StrCat("Cancel ", runs, " of ", name, " that wait, too?"),
                          "nothing was cancelled or ended", kNobodyToAsk));
    if (!agreed) return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const int cancelled, batches->CancelWaiting(waiting, kCancelledByUser));
  context_.Say(absl::StrCat("cancelled ", cancelled, cancelled == 1 ? " run of " : " runs of ",
                            name, " that waited"));
  return absl::OkStatus();
}

absl::StatusOr<Plan> Down::PlanBatch(const std::string& name) {
  ASSIGN_OR_RETURN(ledger_, holdings_.FindLedger());
  ASSIGN_OR_RETURN(const std::unique_ptr<BatchStore> batches, OpenBatches(context_));
  ASSIGN_OR_RETURN(const Batch batch, batches->Get(name));
  ASSIGN_OR_RETURN(const std::vector<Entry> entries, batches->Entries(batch.batch_id));
  for (const Entry& entry : entries) {
    if (!entry.run_id.empty()) named_.insert(entry.run_id);
  }
  // Runs that went on as others used machines, too.
  ASSIGN_OR_RETURN(const std::vector<Attempt> attempts, batches->Attempts(batch.batch_id));
  for (const Attempt& attempt : attempts) named_.insert(attempt.run_id);
  Plan plan;
  for (const std::string& run_id : named_) {
    absl::StatusOr<RunRow> row = store_.Get(run_id);
    if (absl::IsNotFound(row.status())) continue;  // removed from the list, or never begun
    RETURN_IF_ERROR(row.status());
    const bool ended = row->end.has_value();
    const size_t before = plan.runs.size();
    RETURN_IF_ERROR(AddRun(*std::move(row), plan));
    // What is over, and has no machine any more, needs nothing.
    if (ended && plan.runs.size() > before) plan.runs.pop_back();
  }
  RETURN_IF_ERROR(LeaveShared(plan));
  return plan;
}

absl::StatusOr<bool> Down::Agreed(const std::string& question, const std::string& name) {
  if (yes_) return true;
  ASSIGN_OR_RETURN(
      const bool agreed,
      context_.AskYesNo(question, absl::StrCat(name, " was left alone"), kNobodyToAsk));
  if (agreed) return true;
  context_.Say(absl::StrCat(name, " was left alone"));
  code_ = kExitFailed;
  return false;
}

// Stops all. Goes on after an error with one run.
absl::Status Down::StopRuns(std::vector<RunRow>& runs) {
  if (!yes_) {
    ASSIGN_OR_RETURN(const bool agreed, AgreeToStop(runs));
    if (!agreed) return absl::OkStatus();
  }
  absl::Status first;
  for (RunRow& row : runs) {
    const absl::Status status = StopOne(row);
    if (status.ok()) continue;
    if (absl::IsCancelled(status) || absl::IsInvalidArgument(status)) return status;
    if (!first.ok()) context_.Warn(status.message());
    if (first.ok()) first = status;
  }
  return first;
}

absl::Status Down::StopOne(RunRow& row) {
  std::optional<Lease> lease;
  if (ledger_ != nullptr) {
    ASSIGN_OR_RETURN(lease, LeaseOfPart(*ledger_, row));
  }
  const bool gone = lease.has_value() && !lease->open();
  if (!gone && !row.end.has_value() && !asked_to_stop_) {
    ASSIGN_OR_RETURN(
        const bool agreed,
        Agreed(absl::StrCat("Stop ", row.name, " on ", MachinesOf(store_, row), "?"), row.name));
    if (!agreed) return absl::OkStatus();
  }
  GiveUp(row);
  absl::Status stopped;
  if (gone) {
    if (!row.end.has_value()) RETURN_IF_ERROR(RecordGivenBack(row));
  } else {
    stopped = StopWithMembers(context_, store_, row, /*wait=*/true);
    if (!stopped.ok() && (!row.end.has_value() || absl::IsCancelled(stopped))) return stopped;
  }
  ASSIGN_OR_RETURN(const RunStatus status, MirroredStatus(context_, row));
  runs_json_.push_back(RunToJson(row, status));
  if (row.end.has_value()) {
    context_.Say(absl::StrCat(row.name, " ", DescribeEnd(*row.end)));
  }
  return stopped;
}

// Nobody resumes by itself what its user ends.
void Down::GiveUp(const RunRow& row) {
  ended_.insert(row.run_id);
  if (!all_ && named_.count(row.run_id) == 0) return;
  // Nobody does what was asked for its end, either.
  const absl::Status dropped = DropWishesOf(context_, row.run_id);
  if (!dropped.ok()) {
    context_.Warn(absl::StrCat("what was asked for the end of ", row.name,
                               " stays recorded: ", dropped.message()));
  }
  NoteGivenUp(row);
}

void Down::NoteGivenUp(const RunRow& row) {
  const absl::StatusOr<ClientPaths> paths = context_.Paths();
  const absl::Status noted =
      paths.ok() ? GiveUpIfTakenAway(paths->MirrorDir(row.run_id), row) : paths.status();
  if (!noted.ok())
    context_.Warn(absl::StrCat("gpuctl keep may resume ", row.name, ": ", noted.message()));
}

absl::Status Down::RecordGivenBack(RunRow& row) {
  row.end =
      RunEnd{gpuctl::v1::JOB_STATE_LOST,   kExitLost,       -1, EndSource::kGpuctl, EndCause::kNone,
             "its machine was given back", context_.NowMs()};
  return store_.SetEnd(row.run_id, *row.end);
}

// Stops the machine's jobs. Goes on when a job cannot be reached: its machine must not bill on.
absl::Status Down::StopJobsOn(const Lease& lease) {
  for (const LeaseUse& use : lease.uses) {
    absl::StatusOr<RunRow> row = store_.Get(use.run_id);
    if (!row.ok()) continue;  // a launch that never came to a run
    if (!row->end.has_value() && losses().SchedulerIsSilent(lease)) {
      context_.Warn(absl::StrCat(row->name, " is not told to stop first: Slurm does not answer, ",
                                 "and its own signal ends it"));
    } else if (!row->end.has_value()) {
      const absl::Status stopped = StopWithMembers(context_, store_, *row, /*wait=*/true);
      if (absl::IsCancelled(stopped)) return stopped;
      if (stopped.ok() && row->end.has_value()) {
        context_.Say(absl::StrCat(row->name, " ", DescribeEnd(*row->end)));
      } else if (!stopped.ok()) {
        context_.Warn(absl::StrCat(row->name, " could not be stopped first: ", stopped.message()));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::map<std::string, NotHomeOn>>> Down::AgreeToAll(
    const std::vector<Lease>& leases) {
  if (!context_.CanAsk()) return UsageError(kNobodyToAsk, "add -y to end what is not needed");
  std::map<std::string, NotHomeOn> told;
  std::vector<std::string> lines;
  for (const Lease& lease : leases) {
    ASSIGN_OR_RETURN(const std::vector<std::string> live, LiveRunsOn(store_, lease, {}));
    const NotHomeOn& missing = told[lease.lease_id] = losses().Find(lease);
    lines.push_back(
        absl::StrCat("  ", MachineAndPrice(lease), " of ",
                     live.empty() ? RunOf(lease) : absl::StrCat(FirstFew(live), ", which stops"),
                     ". ", LossText(missing, live)));
  }
  for (const std::string& line : lines) context_.NoteForQuestion(line);
  ASSIGN_OR_RETURN(const bool agreed,
                   context_.AskYesNo(absl::StrCat("End all ", leases.size(), " machines?"),
                                     "no machine was ended", kNobodyToAsk));
  if (agreed) return std::make_optional(std::move(told));
  context_.Say("no machine was ended");
  context_.Hint("gpuctl down PROVIDER/ID ends one; with -y those whose results are at home go");
  code_ = kExitFailed;
  return std::nullopt;
}

absl::StatusOr<bool> Down::AgreeToStop(const std::vector<RunRow>& runs) {
  std::vector<std::string> names;
  for (const RunRow& row : runs) {
    if (row.end.has_value()) continue;
    names.push_back(absl::StrCat(row.name, " on ", MachinesOf(store_, row)));
  }
  if (names.size() < 2) return true;
  ASSIGN_OR_RETURN(const bool agreed,
                   context_.AskYesNo(absl::StrCat("Stop ", absl::StrJoin(names, ", "), "?"),
                                     "no run was stopped", kNobodyToAsk));
  if (!agreed) {
    context_.Say("no run was stopped");
    code_ = kExitFailed;
  }
  asked_to_stop_ = true;
  return agreed;
}

absl::Status Down::ReleaseOne(const Lease& lease, const NotHomeOn* agreed_to) {
  const std::string name = NameOfMachine(lease);
  // What cannot be ended keeps its jobs.
  ASSIGN_OR_RETURN(Provider * provider, holdings_.Find(lease.provider));
  RETURN_IF_ERROR(CheckAccount(holdings_.ledger(), *provider, lease));
  ASSIGN_OR_RETURN(const std::vector<std::string> live, LiveRunsOn(store_, lease, {}));
  // The question tells what would be lost, so that there is one question only.
  const NotHomeOn told = agreed_to != nullptr ? *agreed_to
                         : yes_               ? NotHomeOn()
                                              : losses().Find(lease);
  if (agreed_to == nullptr) {
    if (!yes_ && context_.CanAsk()) {
      context_.NoteForQuestion(LossText(told, live));
      if (!told.ways.empty()) context_.Hint(HowToBringAll(context_, lease, told));
    }
    ASSIGN_OR_RETURN(const bool agreed, Agreed(EndQuestion(lease, live), name));
    if (!agreed) return absl::OkStatus();
  }
  RETURN_IF_ERROR(StopJobsOn(lease));
  // What a job saved when it was stopped counts, too.
  const bool look_again = yes_ ? !force_ : !live.empty();
  const NotHomeOn missing = look_again ? losses().Find(lease) : told;
  if (!missing.wanted.empty() && yes_) {
    context_.Warn(absl::StrCat(name, " stays, and bills on, ", FormatUsdPerHour(lease),
                               "/h: not at home: ", missing.Wanted()));
    context_.Hint(absl::StrCat(HowToBringAll(context_, lease, missing), "; gpuctl down --force ",
                               RunOf(lease), " does without them"));
    kept_json_.push_back({{"instance_id", lease.instance_id},
                          {"provider", lease.provider},
                          {"usd_per_hour", lease.usd_per_hour()},
                          {"why", absl::StrCat("not at home: ", missing.Wanted())}});
    code_ = kExitFailed;
    // Its results stay, but nobody goes on with what its user ends.
    for (const LeaseUse& use : lease.uses) {
      const absl::StatusOr<RunRow> row = store_.Get(use.run_id);
      if (row.ok() && (all_ || named_.count(row->run_id) > 0)) NoteGivenUp(*row);
    }
    return absl::OkStatus();
  }
  if (const std::string lost = missing.All(); !lost.empty() && lost != told.All()) {
    context_.Warn(absl::StrCat("not at home, and lost with the machine: ", lost));
  }
  // This is the last chance to learn what its traffic cost.
  SettleTerms(context_, holdings_.ledger(), {lease});
  const InterruptibleHooks interrupt(context_);
  ASSIGN_OR_RETURN(const Lease ended, Release(holdings_.ledger(), *provider, lease.lease_id,
                                              context_.clock, interrupt.hooks()));
  const int64_t now_ms = context_.NowMs();
  const absl::StatusOr<ClientPaths> paths = context_.Paths();
  for (const LeaseUse& use : ended.uses) {
    absl::StatusOr<RunRow> row = store_.Get(use.run_id);
    if (!row.ok()) continue;
    // Nothing of ours keeps a way to what somebody else may rent next.
    if (paths.ok()) CloseHolders(paths->state_dir, row->target.name);
    GiveUp(*row);
    if (!row->end.has_value()) RETURN_IF_ERROR(RecordGivenBack(*row));
    if (!row->leader.empty()) continue;  // a part of a run that is told
    ASSIGN_OR_RETURN(const RunStatus status, MirroredStatus(context_, *row));
    runs_json_.push_back(RunToJson(*row, status));
  }
  instances_json_.push_back(LeaseToJson(ended, now_ms));
  context_.Say(absl::StrCat(name, " at ", ended.provider, " is gone; it cost ",
                            FormatSpend(SpentOn(ended, now_ms)), " in ",
                            HumanDuration(absl::Milliseconds(ended.ended_ms - ended.intended_ms))));
  return absl::OkStatus();
}

// Releases all. Goes on after an error with one machine, because the others bill too.
absl::Status Down::ReleaseAll(const std::vector<Lease>& leases, bool all) {
  if (leases.empty() && !all) return absl::OkStatus();
  const absl::Status opened = holdings_.OpenAllMarkets();
  // Without any key there is nobody to ask, and nothing that could be ended.
  if (leases.empty() && absl::IsUnauthenticated(opened)) return absl::OkStatus();
  RETURN_IF_ERROR(opened);
  ASSIGN_OR_RETURN(found_, Reconcile(holdings_.ledger(), holdings_.markets(), context_.clock));
  const Reconciliation& found = *found_;
  TellFindings(context_, &store_, found);
  if (all) {
    TellLost(context_, found);
    if (!found.Lost().empty() || LeavesALeak()) code_ = kExitLeak;
  }
  // The listing may have changed the leases.
  std::vector<Lease> open_now;
  for (const Lease& planned : leases) {
    ASSIGN_OR_RETURN(Lease lease, holdings_.ledger().Get(planned.lease_id));
    if (lease.open()) open_now.push_back(std::move(lease));
  }
  std::optional<std::map<std::string, NotHomeOn>> agreed;
  if (!yes_ && open_now.size() > 1) {
    ASSIGN_OR_RETURN(agreed, AgreeToAll(open_now));
    if (!agreed.has_value()) open_now.clear();
  }
  absl::Status first;
  for (auto at = open_now.begin(); at != open_now.end(); ++at) {
    const Lease& lease = *at;
    const absl::Status status =
        ReleaseOne(lease, agreed.has_value() ? &agreed->at(lease.lease_id) : nullptr);
    if (status.ok()) continue;
    for (auto left = at + 1; absl::IsCancelled(status) && left != open_now.end(); ++left) {
      context_.Warn(absl::StrCat(NameOfMachine(*left), " bills on, ", FormatUsdPerHour(*left),
                                 "/h; it was not told to end"));
    }
    // Nobody can be asked; that is not the market's error.
    if (absl::IsCancelled(status) || absl::IsInvalidArgument(status)) return status;
    if (!first.ok()) context_.Warn(status.message());
    if (first.ok() && absl::IsUnavailable(status) && IsAtWork(lease)) {
      first = WithExitCode(
          WithHint(absl::UnavailableError(absl::StrCat(
                       lease.instance_id.empty() ? lease.label : lease.instance_id, " at ",
                       lease.provider, ": a launch or another gpuctl is at work on it")),
                   "when that is over, gpuctl down again"),
          kExitFailed);
    }
    if (first.ok()) first = ExplainMarketError(status, lease.provider);
  }
  for (const ReconcileMarket& market : holdings_.markets()) {
    if (market.provider == nullptr) continue;
    RemoveUnusedLogins(context_, holdings_.ledger(), *market.provider);
  }
  RETURN_IF_ERROR(first);
  ASSIGN_OR_RETURN(const std::vector<Lease> open, holdings_.ledger().List(/*open_only=*/true));
  if (!found.Leaks().empty() && !open.empty()) {
    context_.Hint("gpuctl instances shows what else bills");
  }
  return absl::OkStatus();
}

// True when a machine bills whose lease is over, so that it is not among those to end.
bool Down::LeavesALeak() const {
  const std::vector<const SeenInstance*> leaks = found_->Leaks();
  return std::any_of(leaks.begin(), leaks.end(), [](const SeenInstance* leak) {
    return !leak->lease.has_value() || !leak->lease->open();
  });
}

// Returns what is true where nothing was ended.
std::string Down::NothingEnded(bool all, bool open) const {
  if (open) return "nothing is rented for that; others bill on: gpuctl instances shows them";
  if (!all) return "nothing is rented for that";
  if (!found_.has_value()) return "nothing is rented, by the ledger; no market has a key here";
  if (!found_->unknown.empty()) return "nothing is rented, by the ledger";
  if (!found_->Lost().empty()) return "the ledger knows nothing that is rented";
  if (LeavesALeak()) return "what bills is over for the ledger: gpuctl reap ends it";
  return absl::StrCat("nothing of this gpuctl bills at ", DescribeAsked(holdings_.markets()));
}

absl::Status Down::EndStrangers(const std::vector<std::pair<std::string, InstanceId>>& strangers) {
  if (strangers.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(holdings_.OpenAllMarkets());
  for (const auto& [market, id] : strangers) {
    const std::string name = RentedNodeName(market, id);
    ASSIGN_OR_RETURN(Provider * provider, holdings_.Find(market));
    const absl::StatusOr<Instance> there = provider->Describe(id);
    if (absl::IsNotFound(there.status())) {
      return WithHint(absl::NotFoundError(absl::StrCat("end ", name, ": ", market, " has no ", id)),
                      "gpuctl instances lists what bills");
    }
    if (!there.ok()) return ExplainMarketError(there.status(), market);
    ASSIGN_OR_RETURN(
        const bool agreed,
        Agreed(absl::StrCat(
                   "End ", name, " (", there->label.empty() ? "without a name" : there->label, ", ",
                   FormatGpus(there->gpu_name, there->gpu_count), ", ", FormatUsdPerHour(*there),
                   "/h)? The ledger does not know it; what is on it is lost then."),
               name));
    if (!agreed) continue;
    const InterruptibleHooks interrupt(context_);
    const absl::Status ended = EndInstance(*provider, *there, context_.clock, interrupt.hooks());
    if (!ended.ok()) return ExplainMarketError(ended, market);
    context_.Say(absl::StrCat(name, " is gone; the ledger does not know what it cost"));
  }
  return absl::OkStatus();
}

absl::Status Down::PrintResult(bool rented, bool all) const {
  if (!context_.json()) {
    if (rented || !on_leases_.empty()) return absl::OkStatus();
    std::vector<Lease> open;
    if (ledger_ != nullptr) {
      ASSIGN_OR_RETURN(open, ledger_->List(/*open_only=*/true));
    }
    context_.Say(NothingEnded(all, !open.empty()));
  } else if (!rented || context_.format == OutputFormat::kJsonLines) {
    context_.PrintJsonList("runs", runs_json_);
  } else {
    context_.PrintJson(
        {{"runs", runs_json_}, {"instances", instances_json_}, {"kept", kept_json_}});
  }
  return absl::OkStatus();
}

// Returns `none_live` with the way to end what bills without a live run, if something does.
absl::Status WithBills(CommandContext& context, const absl::Status& none_live) {
  Holdings holdings(context);
  const absl::StatusOr<Ledger*> ledger = holdings.FindLedger();
  if (!ledger.ok() || *ledger == nullptr) return none_live;
  const absl::StatusOr<std::vector<Lease>> open = (*ledger)->List(/*open_only=*/true);
  if (!open.ok() || open->empty()) return none_live;
  return WithExitCode(
      WithHint(absl::NotFoundError(
                   absl::StrCat("no run is live, and ", open->size(),
                                open->size() == 1 ? " machine is rented" : " machines are rented")),
               "gpuctl down --all ends all that bills; gpuctl instances lists it"),
      kExitUsage);
}

}  // namespace

absl::StatusOr<int> CmdDown(CommandContext& context, std::vector<std::string> args) {
  std::vector<std::string> references;
  std::string batch;
  bool all = false, yes = false, force = false;
  VerbParser parser(
      context, "down [RUN|INSTANCE...] | --batch BATCH | --all [FLAGS]",
      "Stops a run's job, with time to save, then gives its rented machine back and\n"
      "waits until the provider says that it is gone. For the providers local and ssh\n"
      "nothing is rented: gpuctl only stops the job.",
      "  gpuctl down amber-fox-3\n"
      "  gpuctl down --batch sweep\n"
      "  gpuctl down --all -y");
  parser.Option("RUN", references,
                "Name, id, or the beginning of one; @last: the newest\n"
                "run; a provider's instance id, or PROVIDER/ID for\n"
                "any instance of the account; without it: the newest\n"
                "live run");
  parser.Option("--batch", batch,
                "Batch whose runs and machines end; machines that other\n"
                "runs use, too, stay");
  parser.Switch("--all", all, "All runs that have not ended, and all that is rented");
  parser.Switch(
      "-y,--yes", yes,
      "Do not ask; a machine whose newest checkpoint or named\nresults are not at home stays");
  parser.Switch("-f,--force", force, "End it also when results are not at home");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  if (all + !references.empty() + !batch.empty() > 1) {
    return UsageError("down takes one of runs, --batch and --all", "gpuctl ps lists the runs");
  }
  // Where nobody is asked, a name that a script forgot must not end another run's bill.
  const bool newest = !all && references.empty() && batch.empty();
  if (newest && (yes || force)) {
    return UsageError(
        "down asks nothing with -y or --force, and then takes the names of runs, or --all",
        "gpuctl ps lists the runs");
  }
  ASSIGN_OR_RETURN(RunStore * store, context.StoreOrCopy());
  if (newest) {
    const absl::StatusOr<RunRow> live = FindNewestLiveRun(context, *store);
    if (absl::IsNotFound(live.status())) return WithBills(context, live.status());
    RETURN_IF_ERROR(live.status());
    references.push_back(live->run_id);
  }
  RETURN_IF_ERROR(CheckNoBatch(context, references,
                               "gpuctl down --batch $ ends its runs and machines; gpuctl cancel "
                               "--running $ ends its runs, and what waits of it"));
  RETURN_IF_ERROR(CheckStarted(context, references));
  Down down(context, *store, yes || force, force);
  ASSIGN_OR_RETURN(Plan plan,
                   batch.empty() ? down.MakePlan(references, all) : down.PlanBatch(batch));
  // What waits would take the machines, or rent, while they are ended.
  if (!batch.empty()) RETURN_IF_ERROR(down.CancelWaiting(batch));
  // End the bills first, so that a user's own machine that does not answer does not delay that.
  RETURN_IF_ERROR(down.ReleaseAll(plan.leases, all));
  RETURN_IF_ERROR(down.EndStrangers(plan.strangers));
  RETURN_IF_ERROR(down.StopRuns(plan.runs));
  RETURN_IF_ERROR(down.PrintResult(!plan.leases.empty() || !plan.strangers.empty(), all));
  if (all || !batch.empty()) TellOfBatches(context, batch);
  down.TellSchedules();
  return down.code();
}

}  // namespace gpuctl
