// Which entries of the batches start now and where, and why the others wait. Pure.
#ifndef GPUCTL_CLIENT_BATCH_BATCH_PLAN_H_
#define GPUCTL_CLIENT_BATCH_BATCH_PLAN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/batch/batch_store.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// The longest time until a failed start, or a machine that failed, is tried again.
inline constexpr absl::Duration kLongestWait = absl::Minutes(15);

// What people see of an entry.
enum class EntryPhase { kWaiting, kStarting, kQueued, kRunning, kDone, kFailed, kCancelled };
// Returns "waiting", "starting", "queued" (in its machine's own queue), "running", "done", "failed"
// or "cancelled".
const char* EntryPhaseWord(EntryPhase phase);

struct EntryView {
  Entry entry;
  std::optional<RunRow> run;  // its newest run, as far as the list of runs has it
  EntryPhase phase = EntryPhase::kWaiting;
  std::string why;  // why it waits, failed or was cancelled; "" otherwise
  // True when its run got other files of the work directory than the first one did that was started
  // from there. Only MarkOtherContent (client/verbs/batch_text.h) finds that out.
  bool other_content = false;

  // True when it counts among those that run at once.
  bool live() const {
    return phase == EntryPhase::kStarting || phase == EntryPhase::kQueued ||
           phase == EntryPhase::kRunning;
  }
  bool over() const { return !live() && phase != EntryPhase::kWaiting; }
};

struct BatchView {
  Batch batch;
  std::optional<Schedule> schedule;
  std::vector<EntryView> entries;

  bool over() const;
  // The number of its runs that failed.
  int failed() const;
  // True when so many failed that no more may start.
  bool gives_up() const { return batch.max_failures > 0 && failed() >= batch.max_failures; }
};

// Returns "2 runs failed (--max-failures 2)", of a batch that gives up.
std::string WhyItGivesUp(const BatchView& view);

// The reason with which a node stops a job that must not have started, because its entry starts
// again.
inline constexpr char kStartsAgainReason[] = "its batch starts it again";

// Returns what is shown of an entry with this run.
EntryView ViewOf(Entry entry, std::optional<RunRow> run);

// True when the entry's run was taken away, and gpuctl keep resumes it.
bool WaitsToBeResumed(const EntryView& view);

// What became of a run or an entry that another entry comes after.
enum class EntryOutcome { kOpen, kSucceeded, kFailed };
struct Dependency {
  EntryOutcome outcome = EntryOutcome::kOpen;
  std::string name;  // for people
  // Of an entry: its batch, and how many entries that has.
  std::string batch{};
  size_t of_batch = 0;
};

// A rented machine that runs of its batch share by GPUs.
struct SharedMachine {
  std::string batch_id;
  std::string name;  // NodeTarget::name; "" while it is being rented
  std::string run;   // for people: the run that it is rented for
  int gpus = 0;      // in all
};

struct StartPick {
  std::string entry_id;
  std::string batch_id;
  std::string host;  // BatchHost::host; "" for a rented machine
  std::string join;  // the rented machine that it shares; "" for one of its own
  // The entry that goes to the same machine's queue just before it; "" for none. The machine gets
  // them in this order, which is the order in which its queue starts them.
  std::string behind;
  // In a batch with a cost limit: its entry that starts just before it, and so has the first claim
  // on the money; "" for none.
  std::string pays_after;
  bool task = false;  // it is rented with the other tasks among the picks of its batch
};

struct StartPlan {
  std::vector<StartPick> starts;               // in the order in which they are started
  std::map<std::string, std::string> waits;    // why, by entry id
  std::map<std::string, std::string> cancels;  // entries that can never start, and why
  int64_t retry_ms = 0;  // when the first entry is tried again that failed to start; 0: none is
};

// Plans what starts now. Of a batch that gives up all that waits is cancelled. An entry with a
// number of GPUs goes to the machine that has least to do, whose own queue starts it; one without
// needs a machine for itself. Entries of higher priority come first, then those of older batches.
struct StartInputs {
  // The machines (NodeTarget::name) with a live run, and that run's name.
  std::map<std::string, std::string> busy;
  // Each "run:ID" and "entry:ID" that entries come after; one that is missing has failed.
  std::map<std::string, Dependency> dependencies;
  // The batches' own rented machines. A run with a number of GPUs goes to one that has them free,
  // waits for one that is being rented, goes to one of another batch, or rents another.
  std::vector<SharedMachine> shared;
  // Returns whether an entry may go to the machine of another batch: it fits, and both batches can
  // pay for it. Null: none may.
  std::function<bool(const Batch& batch, const Entry& entry, const SharedMachine& machine)>
      may_join;
  // Returns the GPUs of a machine that is rented for that entry; 0: not known.
  std::function<int(const Entry& entry)> rented_gpus;
  int64_t now_ms = 0;
};
StartPlan PlanStarts(const std::vector<BatchView>& batches, StartInputs inputs);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BATCH_BATCH_PLAN_H_
