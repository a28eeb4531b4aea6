// gpuctl prune: remove from machines what all runs left there that are over and whose results are
// on this laptop.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/hosts/resolve_target.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/terminal/console.h"
#include "client/verbs/remove_runs.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"

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
  absl::Status JudgeMachine(Machine& machine);

  CommandContext& context_;
  RunStore& store_;
  const PruneFlags& flags_;
  std::set<std::string> ours_;  // job ids of all runs in the list
  std::vector<Machine> machines_;
  std::vector<std::pair<Machine*, RunRemoval>> removals_;
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
  return absl::OkStatus();
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
    context_.Say(machine.unknown.message());
    if (code_ == kExitOk) code_ = ExitCodeOf(machine.unknown);
  }
}

absl::Status Prune::Remove() {
  int64_t count = 0, bytes = 0;
  std::vector<std::string> names;
  for (const auto& [machine, removal] : removals_) {
    if (removal.outcome != RunRemoval::Outcome::kWouldRemove) continue;
    ++count;
    names.push_back(removal.row.name);
    bytes += removal.freed_bytes;
  }
  if (flags_.dry_run || count == 0) return absl::OkStatus();
  if (!flags_.yes) {
    context_.Say(absl::StrCat("over and at home: ", absl::StrJoin(names, " ")));
    ASSIGN_OR_RETURN(
        const bool agreed,
        context_.AskYesNo(absl::StrCat("Remove what ", count, count == 1 ? " run" : " runs",
                                       " left on machines (", FormatBytes(bytes), ")?"),
                          "nothing was removed",
                          "prune asks before it removes something, and there is nobody to ask"));
    if (!agreed) {
      return WithExitCode(absl::CancelledError("nothing was removed"), kExitFailed);
    }
  }
  for (auto& [machine, removal] : removals_) {
    RemoveRun(*machine->calls, removal);
    if (removal.outcome == RunRemoval::Outcome::kKept && code_ == kExitOk &&
        !absl::IsFailedPrecondition(removal.why)) {
      code_ = ExitCodeOf(removal.why);
    }
  }
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
  PrintRemovals(context_, removals, flags_.dry_run, &unknown);
  if (removals.empty()) context_.Say("nothing to remove");
}

}  // namespace

absl::StatusOr<int> CmdPrune(CommandContext& context, std::vector<std::string> args) {
  PruneFlags flags;
  VerbParser parser(
      context, "prune [FLAGS]",
      "Removes what ended runs left on this machine and on those reached by ssh, as rm does.\n"
      "Keeps and names runs that are not completely at home. Leaves jobs alone that are in\n"
      "another laptop's list. Rented machines go as a whole.",
      "  gpuctl prune --dry-run\n"
      "  gpuctl prune --host ada@gpu.example --older-than 14d -y");
  parser.Option("--host", flags.target.host,
                "Only on this machine: an ssh alias or USER@HOST[:PORT]");
  parser.Option("-p,--port", flags.target.port, "Its ssh port").Range(1, 65535);
  parser.Option("--older-than", flags.older_than,
                "Only runs that ended this long ago, such as 14d");
  parser.Switch("--dry-run", flags.dry_run, "Only say what it would free");
  parser.Switch("-y,--yes", flags.yes, "Do not ask");
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
