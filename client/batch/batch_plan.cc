#include "client/batch/batch_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/base/quantity.h"
#include "client/batch/entry_spec.h"
#include "client/runs/run_status.h"

namespace gpuctl {
namespace {

struct Candidate {
  const BatchView* batch;
  const EntryView* view;
};

// Waiting entries in the order in which they may start.
std::vector<Candidate> InOrder(const std::vector<BatchView>& batches) {
  std::vector<Candidate> candidates;
  for (const BatchView& batch : batches) {
    for (const EntryView& view : batch.entries) {
      if (view.phase == EntryPhase::kWaiting) candidates.push_back({&batch, &view});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a.view->entry.priority > b.view->entry.priority;
  });
  return candidates;
}

std::string TriedAgain(int64_t not_before_ms, int64_t now_ms) {
  return absl::StrCat(
      "; tried again in ",
      HumanDuration(absl::Milliseconds(std::max<int64_t>(1000, not_before_ms - now_ms))));
}

class Planner {
 public:
  Planner(const std::vector<BatchView>& batches, StartInputs inputs) : in_(std::move(inputs)) {
    for (const BatchView& batch : batches) {
      for (const EntryView& view : batch.entries) {
        if (!view.live()) continue;
        ++live_[batch.batch.batch_id];
        if (batch.batch.array) in_array_.insert(batch.batch.batch_id);
        const std::string machine = MachineOf(view);
        taken_[machine.empty() ? view.entry.name : machine] += ShareOfMachine(view.entry.gpus);
        if (view.entry.machine.empty()) continue;
        in_.busy.emplace(view.entry.machine, view.entry.name);
        load_[view.entry.machine] += LoadOf(view.entry);
        if (view.phase == EntryPhase::kStarting && view.entry.gpus >= 0) {
          last_[view.entry.machine] = view.entry.entry_id;
        }
      }
    }
  }

  void Consider(const Candidate& candidate) {
    const Entry& entry = candidate.view->entry;
    if (candidate.batch->gives_up()) {
      plan_.cancels[entry.entry_id] = WhyItGivesUp(*candidate.batch);
      return;
    }
    if (!MayStart(entry)) return;
    const Batch& batch = candidate.batch->batch;
    if (batch.array) {
      PickTask(entry, *candidate.batch);
      return;
    }
    if (live_[batch.batch_id] >= batch.max_parallel) {
      Wait(entry, batch.max_parallel == 1 ? "one runs at a time (--max-parallel)"
                                          : absl::StrCat("at most ", batch.max_parallel,
                                                         " run at once (--max-parallel)"));
      return;
    }
    const BatchHost* const host = FreeHost(entry, batch);
    const bool rents = host != nullptr && host->target_name.empty();
    StartPick pick{entry.entry_id, batch.batch_id, host == nullptr ? "" : host->host, "", "", ""};
    if (entry.gpus >= 0 && batch.rents && (host == nullptr || rents)) {
      // A machine that is rented already serves also while the markets have nothing.
      const SharedMachine* const machine = FindShared(entry, batch);
      if (machine != nullptr && machine->name.empty()) {
        Wait(entry, absl::StrCat("for the machine that is rented for ", machine->run));
        ++live_[batch.batch_id];  // it has its place there
        return;
      }
      if (machine == nullptr && host == nullptr) return;
      if (machine == nullptr) AddShared(entry, batch);
      if (machine != nullptr) pick.join = machine->name;
    } else if (host == nullptr) {
      return;
    } else if (!rents) {
      in_.busy.emplace(host->target_name, entry.name);
      load_[host->target_name] += LoadOf(entry);
    }
    const std::string& machine = rents || host == nullptr ? pick.join : host->target_name;
    if (entry.gpus >= 0 && !machine.empty()) {
      pick.behind = std::exchange(last_[machine], entry.entry_id);
    }
    if (batch.max_cost_usd.has_value()) {
      pick.pays_after = std::exchange(last_paid_[batch.batch_id], entry.entry_id);
    }
    plan_.waits.erase(entry.entry_id);
    ++live_[batch.batch_id];
    plan_.starts.push_back(std::move(pick));
  }

  StartPlan Take() { return std::move(plan_); }

 private:
  // Those of one pass become one array. A second one beside it would run as many at once again.
  void PickTask(const Entry& entry, const BatchView& view) {
    const Batch& batch = view.batch;
    const bool limited = batch.max_parallel < static_cast<int>(view.entries.size());
    if (limited && in_array_.count(batch.batch_id) > 0) {
      Wait(entry, absl::StrCat("for the end of its array before, of which at most ",
                               batch.max_parallel, " run at once (--max-parallel)"));
      return;
    }
    const BatchHost* const host = FreeHost(entry, batch);
    if (host == nullptr) return;
    plan_.waits.erase(entry.entry_id);
    plan_.starts.push_back({entry.entry_id, batch.batch_id, host->host, "", "", "", /*task=*/true});
  }

  // A run without a number takes the whole machine.
  static int LoadOf(const Entry& entry) { return entry.gpus < 0 ? kWholeMachine : entry.gpus + 1; }

  // Returns the machine of a live entry; "" while it is being rented.
  static std::string MachineOf(const EntryView& view) {
    if (!view.entry.machine.empty() || view.phase == EntryPhase::kStarting) {
      return view.entry.machine;
    }
    return view.run.has_value() ? view.run->target.name : "";
  }

  // Returns a machine with GPUs for the entry, and takes them: one of the batch that is there, one
  // that is being rented for it, or one of another batch. Null when there is none.
  const SharedMachine* FindShared(const Entry& entry, const Batch& batch) {
    const SharedMachine* best = nullptr;
    int best_rank = 3;
    // An entry that could not start on a machine of others gets one of its own.
    for (const SharedMachine& machine : in_.shared) {
      if (entry.failures > 0 || !HasRoom(machine, entry)) continue;
      const bool own = machine.batch_id == batch.batch_id;
      const int rank = !own ? 2 : machine.name.empty() ? 1 : 0;
      if (rank >= best_rank || (!own && !MayJoin(batch, entry, machine))) continue;
      best = &machine;
      best_rank = rank;
    }
    if (best != nullptr) taken_[KeyOf(*best)] += ShareOfMachine(entry.gpus);
    return best;
  }
  bool MayJoin(const Batch& batch, const Entry& entry, const SharedMachine& machine) const {
    return !machine.name.empty() && in_.may_join != nullptr && in_.may_join(batch, entry, machine);
  }
  // Adds the machine that the entry rents, which later ones share.
  void AddShared(const Entry& entry, const Batch& batch) {
    const int gpus = in_.rented_gpus == nullptr ? 0 : in_.rented_gpus(entry);
    in_.shared.push_back({batch.batch_id, "", entry.name, gpus});
    taken_[entry.name] += ShareOfMachine(entry.gpus);
  }
  static const std::string& KeyOf(const SharedMachine& machine) {
    return machine.name.empty() ? machine.run : machine.name;
  }
  bool HasRoom(const SharedMachine& machine, const Entry& entry) {
    return taken_[KeyOf(machine)] + ShareOfMachine(entry.gpus) <= machine.gpus;
  }

  // A clock that was set back makes nobody wait for long.
  bool IsLater(int64_t not_before_ms) const {
    return not_before_ms > in_.now_ms &&
           not_before_ms - in_.now_ms <= absl::ToInt64Milliseconds(kLongestWait);
  }

  void Wait(const Entry& entry, std::string why) { plan_.waits[entry.entry_id] = std::move(why); }

  // Names the whole batch where the entry comes after all of it, as it was typed.
  std::string DescribeAfter(const Entry& entry, const Dependency& open) const {
    size_t of_same = 0;
    for (const std::string& reference : entry.after) {
      const auto found = in_.dependencies.find(reference);
      of_same += found != in_.dependencies.end() && found->second.batch == open.batch ? 1 : 0;
    }
    if (open.batch.empty() || of_same < open.of_batch) return absl::StrCat("after ", open.name);
    return absl::StrCat("after ", open.batch, ": ", open.name, " is not over");
  }

  // True when nothing of the entry's own keeps it from starting.
  bool MayStart(const Entry& entry) {
    for (const std::string& reference : entry.after) {
      const auto found = in_.dependencies.find(reference);
      if (found == in_.dependencies.end() || found->second.outcome == EntryOutcome::kFailed) {
        const bool known = found != in_.dependencies.end();
        plan_.cancels[entry.entry_id] =
            known ? absl::StrCat("it comes after ", found->second.name, ", which did not succeed")
                  : "what it comes after was removed";
        return false;
      }
      if (found->second.outcome == EntryOutcome::kOpen) {
        Wait(entry, DescribeAfter(entry, found->second));
        return false;
      }
    }
    if (!IsLater(entry.not_before_ms)) return true;
    if (plan_.retry_ms == 0 || entry.not_before_ms < plan_.retry_ms) {
      plan_.retry_ms = entry.not_before_ms;
    }
    Wait(entry, absl::StrCat(entry.why, TriedAgain(entry.not_before_ms, in_.now_ms)));
    return false;
  }

  // Returns a machine that the entry can start on now; null when there is none, and notes why.
  const BatchHost* FreeHost(const Entry& entry, const Batch& batch) {
    std::string why;
    const BatchHost* best = nullptr;
    for (const BatchHost& host : batch.hosts) {
      const auto busy = in_.busy.find(host.target_name);
      if (IsLater(host.not_before_ms)) {
        if (why.empty()) why = absl::StrCat(host.why, TriedAgain(host.not_before_ms, in_.now_ms));
      } else if (entry.gpus >= 0 && !host.target_name.empty()) {
        if (best == nullptr || load_[host.target_name] < load_[best->target_name]) best = &host;
      } else if (!host.target_name.empty() && busy != in_.busy.end()) {
        if (why.empty()) why = absl::StrCat(host.target_name, " has ", busy->second);
      } else {
        return best == nullptr ? &host : best;
      }
    }
    if (best != nullptr) return best;
    Wait(entry, why.empty() ? "no machine is named for it" : why);
    return nullptr;
  }

  StartInputs in_;
  static constexpr int kWholeMachine = 1000;
  std::map<std::string, int> load_;          // GPUs that are asked for, by machine
  std::map<std::string, int> taken_;         // GPUs of rented machines, by machine, else by run
  std::map<std::string, int> live_;          // by batch id
  std::set<std::string> in_array_;           // batches of which tasks are live
  std::map<std::string, std::string> last_;  // the last entry on its way to a machine's queue
  std::map<std::string, std::string> last_paid_;  // the last pick, by batch id
  StartPlan plan_;
};

EntryPhase PhaseOfEnd(const RunEnd& end) {
  if (end.cause == EndCause::kUser) return EntryPhase::kCancelled;
  return end.exit_code == 0 && end.state == gpuctl::v1::JOB_STATE_FINISHED ? EntryPhase::kDone
                                                                           : EntryPhase::kFailed;
}

}  // namespace

const char* EntryPhaseWord(EntryPhase phase) {
  switch (phase) {
    case EntryPhase::kWaiting:
      return "waiting";
    case EntryPhase::kStarting:
      return "starting";
    case EntryPhase::kQueued:
      return "queued";
    case EntryPhase::kRunning:
      return "running";
    case EntryPhase::kDone:
      return "done";
    case EntryPhase::kFailed:
      return "failed";
    case EntryPhase::kCancelled:
      break;
  }
  return "cancelled";
}

bool BatchView::over() const {
  if (schedule.has_value() && !schedule->ended) return false;
  return std::all_of(entries.begin(), entries.end(),
                     [](const EntryView& view) { return view.over(); });
}

int BatchView::failed() const {
  return static_cast<int>(std::count_if(entries.begin(), entries.end(), [](const EntryView& view) {
    return view.phase == EntryPhase::kFailed;
  }));
}

std::string WhyItGivesUp(const BatchView& view) {
  const int failed = view.failed();
  return absl::StrCat(failed, failed == 1 ? " run" : " runs", " failed (--max-failures ",
                      view.batch.max_failures, ")");
}

bool WaitsToBeResumed(const EntryView& view) {
  return view.entry.state == EntryState::kStarted && view.run.has_value() &&
         view.run->end.has_value() && IsPreempted(*view.run->end) &&
         view.entry.followed < view.entry.resumes;
}

EntryView ViewOf(Entry entry, std::optional<RunRow> run) {
  EntryView view;
  view.entry = std::move(entry);
  view.run = std::move(run);
  view.why = view.entry.why;
  switch (view.entry.state) {
    case EntryState::kWaiting:
      return view;
    case EntryState::kStarting:
      view.phase = EntryPhase::kStarting;
      return view;
    case EntryState::kFailed:
      view.phase = EntryPhase::kFailed;
      return view;
    case EntryState::kCancelled:
      view.phase = EntryPhase::kCancelled;
      return view;
    case EntryState::kStarted:
      break;
  }
  if (!view.run.has_value()) {
    view.phase = view.entry.outcome == EntryPhaseWord(EntryPhase::kDone) ? EntryPhase::kDone
                                                                         : EntryPhase::kFailed;
    if (view.phase == EntryPhase::kFailed) view.why = "its run was removed from the list";
    return view;
  }
  view.phase = EntryPhase::kRunning;
  if (!view.run->end.has_value()) return view;
  const RunEnd& end = *view.run->end;
  if (WaitsToBeResumed(view)) {
    view.why = "its machine was taken away; gpuctl keep resumes it";
    return view;
  }
  view.phase = PhaseOfEnd(end);
  if (view.phase != EntryPhase::kDone) view.why = DescribeEnd(end);
  return view;
}

StartPlan PlanStarts(const std::vector<BatchView>& batches, StartInputs inputs) {
  Planner planner(batches, std::move(inputs));
  for (const Candidate& candidate : InOrder(batches)) planner.Consider(candidate);
  return planner.Take();
}

}  // namespace gpuctl
