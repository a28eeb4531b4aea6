// gpuctl prune: remove from machines what all runs left there that are over and whose results are
// on this laptop.
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/cluster/allocation.h"
#include "client/hosts/resolve_target.h"
#include "client/keys/cluster_results.h"
#include "client/market/holdings.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/terminal/console.h"
#include "client/verbs/remove_runs.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/market/label.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

struct PruneFlags {
  TargetFlags target;
  std::string older_than;
  bool dry_run = false, yes = false;
};

// A machine with runs of ours on it.
struct Machine {
  NodeTarget target;
  std::vector<RunRow> runs;
  absl::Status unknown;  // the error, when it could not be asked
  std::unique_ptr<LinkFactory> links;
  std::unique_ptr<NodeCalls> calls;
  std::string label;  // of a lease: the "machine" is what a cluster keeps of it
};

// What a cluster keeps of an allocation of which no run is in the list any more.
struct Leftover {
  KeptResults kept;
  const char* action = "would_remove";
  absl::Status why;  // the error, when it was not removed
};

class Prune {
 public:
  Prune(CommandContext& context, RunStore& store, const PruneFlags& flags)
      : context_(context), store_(store), flags_(flags) {}

  absl::Status Select();
  void Judge();
  absl::Status Remove();
  void Print() const;
  int code() const { return code_; }

 private:
  absl::Status SelectKept(const std::vector<RunRow>& rows, absl::Duration older_than);
  absl::StatusOr<bool> MayLive(const KeptResults& kept);
  absl::Status JudgeMachine(Machine& machine);
  absl::StatusOr<bool> Ask(const std::vector<std::string>& names, int64_t bytes);
  void RemoveLeftover(Leftover& leftover);
  void RemoveEmptied();
  void Note(const absl::Status& error);

  CommandContext& context_;
  RunStore& store_;
  const PruneFlags& flags_;
  std::set<std::string> ours_;  // job ids of all runs in the list
  std::vector<Machine> machines_;
  std::vector<std::pair<Machine*, RunRemoval>> removals_;
  std::unique_ptr<ClusterResults> cluster_;  // null: there is none
  absl::Status cluster_unknown_;             // the error, when its login node could not be asked
  std::optional<std::set<std::string>> queued_;  // the labels of the jobs that it has
  std::vector<Leftover> leftovers_;
  int code_ = kExitOk;
};

// Selects the finished runs on the user's own machines. Rented machines are given back as a whole.
absl::Status Prune::Select() {
  absl::Duration older_than;
  if (!flags_.older_than.empty()) {
    absl::StatusOr<absl::Duration> age = ParseDuration(flags_.older_than);
    if (!age.ok()) {
      return UsageError(absl::StrCat("--older-than: ", age.status().message()),
                        "gpuctl prune --older-than 14d");
    }
    older_than = *age;
  }
  std::string only;
  if (!flags_.target.host.empty()) {
    ASSIGN_OR_RETURN(const NodeTarget target, ResolveTarget(flags_.target));
    only = target.name;
  }
  ASSIGN_OR_RETURN(std::vector<RunRow> rows, store_.List());
  // Those of runs on several machines lie each on its own.
  RunFilter of_several;
  of_several.members = true;
  ASSIGN_OR_RETURN(const std::vector<RunRow> members, store_.List(of_several));
  rows.insert(rows.end(), members.begin(), members.end());
  for (const RunRow& row : rows) {
    ours_.insert(row.job_id);
    const bool own = row.target.provider == "local" || row.target.provider == "ssh";
    if (!own || row.node_id.empty() || (!only.empty() && row.target.name != only)) continue;
    if (!row.end.has_value() ||
        absl::Milliseconds(context_.NowMs() - row.end->ended_ms) < older_than) {
      continue;
    }
    const auto same = std::find_if(machines_.begin(), machines_.end(), [&](const Machine& machine) {
      return machine.target.name == row.target.name && machine.target.root == row.target.root;
    });
    Machine& machine = same == machines_.end() ? machines_.emplace_back() : *same;
    if (machine.runs.empty()) machine.target = row.target;
    // The listed row lacks the run's patterns; Get has them.
    ASSIGN_OR_RETURN(machine.runs.emplace_back(), store_.Get(row.run_id));
  }
  return only.empty() ? SelectKept(rows, older_than) : absl::OkStatus();
}

// Returns true where the allocation may still write there, as the cluster's queue says.
absl::StatusOr<bool> Prune::MayLive(const KeptResults& kept) {
  if (!queued_.has_value()) {
    ASSIGN_OR_RETURN(const std::vector<Market> markets,
                     OpenMarkets(context_, {std::string(kClusterProvider)}));
    ASSIGN_OR_RETURN(const std::vector<Instance> jobs, markets.front().provider->ListInstances());
    queued_.emplace();
    for (const Instance& job : jobs) queued_->insert(job.label);
  }
  return queued_->count(kept.label) > 0;
}

// Selects what the cluster keeps of allocations that are over.
absl::Status Prune::SelectKept(const std::vector<RunRow>& rows, absl::Duration older_than) {
  ASSIGN_OR_RETURN(cluster_, ClusterResults::OfSettings(context_));
  if (cluster_ == nullptr) return absl::OkStatus();
  const absl::StatusOr<std::vector<KeptResults>> all = cluster_->List();
  cluster_unknown_ = all.status();
  if (!all.ok() || all->empty()) return absl::OkStatus();
  Holdings holdings(context_);
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.OpenLedger());
  ASSIGN_OR_RETURN(const std::string owner, ledger->OwnerId());
  ASSIGN_OR_RETURN(const std::vector<Lease> leases, ledger->List(/*open_only=*/false));
  for (const KeptResults& kept : *all) {
    const std::optional<LeaseLabel> label = ParseLabel(kept.label);
    if (!label.has_value() || label->owner != owner) continue;
    const auto lease = std::find_if(leases.begin(), leases.end(), [&kept](const Lease& each) {
      return each.label == kept.label;
    });
    const bool known = lease != leases.end();
    if (known && lease->open()) continue;
    std::set<std::string> used_by;
    if (known) {
      for (const LeaseUse& use : lease->uses) used_by.insert(use.run_id);
    }
    std::map<int, Machine> nodes;  // of the allocation
    bool is_used = false;
    for (const RunRow& row : rows) {
      if (used_by.count(row.leader.empty() ? row.run_id : row.leader) == 0) continue;
      // A run that goes on elsewhere may need what is here.
      is_used = is_used || !row.end.has_value();
      const std::optional<AllocationName> at = ParseAllocationName(row.target.name);
      if (!at.has_value() || at->job != lease->instance_id) continue;
      Machine& machine = nodes[at->node];
      machine.target = row.target;
      if (!row.end.has_value() ||
          absl::Milliseconds(context_.NowMs() - row.end->ended_ms) < older_than) {
        is_used = true;
        continue;
      }
      ASSIGN_OR_RETURN(machine.runs.emplace_back(), store_.Get(row.run_id));
    }
    const bool prunes = std::any_of(nodes.begin(), nodes.end(),
                                    [](const auto& node) { return !node.second.runs.empty(); });
    if (prunes && kept.has_jobs) {
      for (auto& [index, machine] : nodes) {
        machine.label = kept.label;
        machines_.push_back(std::move(machine));
      }
      continue;
    }
    if (is_used || kept.unchanged < older_than) continue;
    if (!known) {
      // A ledger that was lost does not know what lives.
      const absl::StatusOr<bool> lives = MayLive(kept);
      if (!lives.ok()) cluster_unknown_ = lives.status();
      if (!lives.ok() || *lives) continue;
    }
    leftovers_.emplace_back().kept = kept;
  }
  return absl::OkStatus();
}

// Notes an error for the exit code.
void Prune::Note(const absl::Status& error) {
  if (code_ == kExitOk) code_ = ExitCodeOf(error);
}

absl::Status Prune::JudgeMachine(Machine& machine) {
  ASSIGN_OR_RETURN(machine.links, MakeLinks(context_, machine.target));
  ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context_, *machine.links, machine.target));
  machine.calls = std::make_unique<NodeCalls>(std::move(calls));
  ASSIGN_OR_RETURN(const std::vector<gpuctl::v1::Job> jobs, machine.calls->ListJobs());
  std::set<std::string> there;
  int64_t others = 0;
  for (const gpuctl::v1::Job& job : jobs) {
    there.insert(job.job_id());
    others += ours_.count(job.job_id()) == 0 ? 1 : 0;
  }
  if (others > 0) {
    context_.Say(absl::StrCat(others, others == 1 ? " job" : " jobs", " on ", machine.target.name,
                              " are of another list of runs: left alone"));
  }
  for (RunRow& row : machine.runs) {
    if (there.count(row.job_id) == 0) continue;
    removals_.emplace_back(&machine,
                           JudgeRun(context_, store_, *machine.calls, row, /*force=*/false));
  }
  return absl::OkStatus();
}

void Prune::Judge() {
  for (Machine& machine : machines_) {
    machine.unknown = JudgeMachine(machine);
    if (machine.unknown.ok()) continue;
    context_.Warn(machine.unknown.message());
    Note(machine.unknown);
  }
  if (cluster_unknown_.ok()) return;
  context_.Warn(cluster_unknown_.message());
  Note(cluster_unknown_);
}

absl::StatusOr<bool> Prune::Ask(const std::vector<std::string>& names, int64_t bytes) {
  std::vector<std::string> what;
  if (!names.empty()) {
    context_.Warn(absl::StrCat("over and at home: ", absl::StrJoin(names, " ")));
    what.push_back(absl::StrCat("what ", names.size(), names.size() == 1 ? " run" : " runs",
                                " left on machines (", FormatBytes(bytes), ")"));
  }
  if (!leftovers_.empty()) {
    int64_t kept = 0;
    for (const Leftover& leftover : leftovers_) {
      kept += leftover.kept.bytes;
      context_.Warn(absl::StrCat("kept on ", cluster_->host(), " of no run in the list: ",
                                 leftover.kept.label, " (", FormatBytes(leftover.kept.bytes), ")"));
    }
    what.push_back(absl::StrCat("what the cluster keeps of ", leftovers_.size(),
                                leftovers_.size() == 1 ? " allocation (" : " allocations (",
                                FormatBytes(kept), ")"));
  }
  return context_.AskYesNo(absl::StrCat("Remove ", absl::StrJoin(what, " and "), "?"),
                           "nothing was removed",
                           "prune asks before it removes something, and there is nobody to ask");
}

void Prune::RemoveLeftover(Leftover& leftover) {
  leftover.why = cluster_->Remove(leftover.kept.label);
  leftover.action = leftover.why.ok() ? "removed" : "kept";
  if (leftover.why.ok()) return;
  context_.Warn(leftover.why.message());
  Note(leftover.why);
}

// Removes what the cluster keeps of allocations, once no node of it has jobs there any more.
void Prune::RemoveEmptied() {
  std::map<std::string, bool> emptied;  // by label
  for (Machine& machine : machines_) {
    if (machine.label.empty()) continue;
    bool& empty = emptied.try_emplace(machine.label, true).first->second;
    if (machine.unknown.ok()) {
      const absl::StatusOr<std::vector<gpuctl::v1::Job>> jobs = machine.calls->ListJobs();
      machine.unknown = jobs.status();
      if (!jobs.ok()) Note(jobs.status());
      empty = empty && jobs.ok() && jobs->empty();
    } else {
      empty = false;
    }
  }
  for (Machine& machine : machines_) {
    const auto found = emptied.find(machine.label);
    if (found == emptied.end() || !found->second) continue;
    machine.unknown = cluster_->Remove(machine.label);
    if (!machine.unknown.ok()) Note(machine.unknown);
    emptied.erase(found);
  }
}

absl::Status Prune::Remove() {
  int64_t bytes = 0;
  std::vector<std::string> names;
  for (const auto& [machine, removal] : removals_) {
    if (removal.outcome != RunRemoval::Outcome::kWouldRemove) continue;
    names.push_back(removal.row.name);
    bytes += removal.freed_bytes;
  }
  if (flags_.dry_run || (names.empty() && leftovers_.empty())) return absl::OkStatus();
  if (!flags_.yes) {
    ASSIGN_OR_RETURN(const bool agreed, Ask(names, bytes));
    if (!agreed) {
      return WithExitCode(absl::CancelledError("nothing was removed"), kExitFailed);
    }
  }
  for (auto& [machine, removal] : removals_) {
    RemoveRun(*machine->calls, removal);
    if (removal.outcome == RunRemoval::Outcome::kKept && !absl::IsFailedPrecondition(removal.why)) {
      Note(removal.why);
    }
  }
  RemoveEmptied();
  for (Leftover& leftover : leftovers_) RemoveLeftover(leftover);
  return absl::OkStatus();
}

void Prune::Print() const {
  std::vector<RunRemoval> removals;
  for (const auto& [machine, removal] : removals_) removals.push_back(removal);
  nlohmann::ordered_json unknown = nlohmann::ordered_json::array();
  for (const Machine& machine : machines_) {
    if (machine.unknown.ok()) continue;
    unknown.push_back(
        {{"node", machine.target.name}, {"cause", std::string(machine.unknown.message())}});
  }
  nlohmann::ordered_json kept = nlohmann::ordered_json::array();
  if (!cluster_unknown_.ok()) {
    unknown.push_back(
        {{"node", cluster_->host()}, {"cause", std::string(cluster_unknown_.message())}});
  }
  for (const Leftover& leftover : leftovers_) {
    const nlohmann::ordered_json why = leftover.why.ok()
                                           ? nlohmann::ordered_json(nullptr)
                                           : nlohmann::ordered_json(leftover.why.message());
    kept.push_back({{"node", cluster_->host()},
                    {"label", leftover.kept.label},
                    {"bytes", leftover.kept.bytes},
                    {"action", leftover.action},
                    {"why", why}});
  }
  const nlohmann::ordered_json more = {{"unknown", unknown}, {"leftovers", kept}};
  PrintRemovals(context_, removals, flags_.dry_run, &more);
  for (const Leftover& leftover : leftovers_) {
    if (!leftover.why.ok()) continue;
    context_.Say(absl::StrCat(flags_.dry_run ? "would remove " : "removed ", leftover.kept.label,
                              " from ", cluster_->host(),
                              ", kept of no run in the list: ", FormatBytes(leftover.kept.bytes)));
  }
  if (removals.empty() && leftovers_.empty()) context_.Say("nothing to remove");
}

}  // namespace

absl::StatusOr<int> CmdPrune(CommandContext& context, std::vector<std::string> args) {
  PruneFlags flags;
  VerbParser parser(
      context, "prune [FLAGS]",
      "Removes what ended runs left on this machine and on those reached by ssh, as rm does.\n"
      "Keeps and names runs that are not completely at home. Leaves jobs alone that are in\n"
      "another laptop's list. Rented machines go as a whole; what a cluster keeps of\n"
      "allocations that are over goes, too, also where no run of them is in the list.",
      "  gpuctl prune --dry-run\n"
      "  gpuctl prune --host ada@gpu.example --older-than 14d -y");
  parser.Option("--host", flags.target.host,
                "Only on this machine: an ssh alias or USER@HOST[:PORT]");
  parser.Option("-p,--port", flags.target.port, "Its ssh port").Range(1, 65535);
  parser.Option("--older-than", flags.older_than,
                "Only runs that ended this long ago, such as 14d");
  parser.Switch("--dry-run", flags.dry_run, "Only say what it would free");
  parser.Switch("-y,--yes", flags.yes, "Do not ask");
  parser.Quiet("Print nothing; with --dry-run the names of the runs");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  Prune prune(context, *store, flags);
  RETURN_IF_ERROR(prune.Select());
  prune.Judge();
  RETURN_IF_ERROR(prune.Remove());
  prune.Print();
  return prune.code();
}

}  // namespace gpuctl
