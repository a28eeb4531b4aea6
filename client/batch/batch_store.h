// The batches and their entries: tables of their own in the database of the list of runs, which
// several processes may use at once. They hold no values of secrets.
#ifndef GPUCTL_CLIENT_BATCH_BATCH_STORE_H_
#define GPUCTL_CLIENT_BATCH_BATCH_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/batch/parameters.h"

struct sqlite3;

namespace gpuctl {

// A machine that is there already, on which entries may start. One without a target_name stands for
// the markets.
struct BatchHost {
  // As typed: "local", or a name for ssh; kOnMachine and its target_name: the machine of an earlier
  // run, also a rented one.
  std::string host;
  int port = 0;  // 0: as ssh has it
  std::string identity;
  std::string target_name;    // NodeTarget::name
  int64_t not_before_ms = 0;  // after a failure: when it is tried again
  int failures = 0;           // since the last success
  std::string why;            // of the last failure
};

inline constexpr size_t kLongestBatchName = 40;  // a run's name has its number behind it
inline constexpr char kOnMachine[] = "on:";
// Why an entry that the user took out of its batch did not start.
inline constexpr char kCancelledByUser[] = "cancelled by you";
inline constexpr char kReplacedByUser[] = "another batch took its place";

struct Batch {
  std::string batch_id;
  std::string name;    // unique
  std::string digest;  // of what it runs (BatchDigest)
  int64_t created_ms = 0;
  int max_parallel = 1;
  int max_failures = 0;                // after so many failed runs no more start; 0: no limit
  std::optional<double> max_cost_usd;  // of all its rented machines together
  bool rents = false;                  // entries may go to rented machines
  bool array = false;  // they are rented as tasks of arrays, of which max_parallel run at once
  double agreed_usd_per_hour = 0;  // the highest price that the user was shown and agreed to
  std::vector<std::string> tags;   // of its runs
  std::vector<BatchHost> hosts;
};

// A batch that gets an entry at each time of a schedule.
struct Schedule {
  std::string batch_id;
  std::string cron;                          // as typed (ParseCron)
  std::string launch_json;                   // the LaunchRecord of each run, without a name
  bool overlap = false;                      // an entry also comes while an earlier one is not over
  int priority = 0, resumes = 0, gpus = -1;  // of its entries
  int64_t next_ms = 0;                       // when the next entry is due
  int64_t last_ms = 0;                       // when the last one was due; 0: none was yet
  bool ended = false;                        // no entry comes any more
  std::string why;  // why the last time went by without an entry; "" when it did not
};

enum class EntryState {
  kWaiting,
  kStarting,   // claimed by a process, which holds the entry's lock while it lives
  kStarted,    // its run is in the list of runs, and a node has it
  kFailed,     // it cannot be started
  kCancelled,  // it will not be started
};
// Returns "waiting", "starting", "started", "failed" or "cancelled".
const char* EntryStateWord(EntryState state);

struct Entry {
  std::string entry_id;
  std::string batch_id;
  int number = 0;    // from 1, in the order of the batch
  std::string name;  // BATCH-NUMBER, unique; the name that its run asks for
  Parameters parameters;
  std::string file;         // the run file that it is from, as typed; "" for none
  std::string launch_json;  // a LaunchRecord
  int priority = 0;         // higher ones start first
  int gpus = -1;            // GPUs of a machine for its run alone; -1: it takes the whole machine
  std::vector<std::string> after;  // "entry:ID", "run:ID": these must have succeeded
  EntryState state = EntryState::kWaiting;
  std::string why;            // why it waits, failed, or was cancelled; for people
  std::string run_id;         // of its newest run; "" until one was claimed
  std::string machine;        // host that it was claimed for; "" for a rented machine
  int64_t not_before_ms = 0;  // after a failed start
  int failures = 0;           // starts that failed in a way that may be the entry's own fault
  int resumes = 0;            // how often gpuctl keep resumes its run when it is preempted
  int followed = 0;           // how often it did; `resumes` once it does so no more
  std::string outcome;        // "done", "failed", "cancelled": what became of its run; "" at first
};

// One start of an entry, also one that came to nothing.
struct Attempt {
  std::string run_id;
  std::string entry_id;
  std::string batch_id;
  double reserved_usd = 0;  // the most that its machine may cost from then on
  bool open = false;        // the entry's run now, and it is live
  bool starting = false;    // it is being started
};

// What became of a batch whose name another one took.
struct ReplacedBatch {
  std::string name;   // its new one
  int cancelled = 0;  // entries that waited
  int live = 0;       // entries that are being started or run, and go on
};

// What the claim of an entry needs.
struct ClaimRequest {
  std::string entry_id;
  std::string run_id;
  std::string machine;      // BatchHost::target_name; "" for a rented machine
  bool shares = false;      // the machine's own queue gives the run its GPUs
  bool task = false;        // the scheduler of its array says how many run at once
  double reserved_usd = 0;  // for a rented machine
  int64_t now_ms = 0;
  // Checks that the batch's cost limit, in USD, allows this start beside its other attempts. Called
  // inside the transaction.
  std::function<absl::Status(double max_cost_usd, const std::vector<Attempt>& attempts)> check_cost;
};

class BatchStore {
 public:
  // Opens the database, which RunStore has opened before, and adds the tables where they are
  // missing.
  static absl::StatusOr<std::unique_ptr<BatchStore>> Open(const std::string& path);
  ~BatchStore();
  BatchStore(const BatchStore&) = delete;
  BatchStore& operator=(const BatchStore&) = delete;

  // Stores a batch with all its entries at once. ALREADY_EXISTS when there is one of that name.
  absl::Status Insert(const Batch& batch, const std::vector<Entry>& entries);
  // Does the same in the place of the batch `before_id`, which has that name: that one gets a name
  // of its own, and its entries are cancelled as by CancelWaiting.
  // ALREADY_EXISTS, and nothing changes, when another batch has the name by now.
  absl::StatusOr<ReplacedBatch> Replace(const Batch& batch, const std::vector<Entry>& entries,
                                        absl::string_view before_id);
  // Stores a batch without entries that has a schedule. ALREADY_EXISTS as for Insert.
  absl::Status InsertScheduled(const Batch& batch, const Schedule& schedule);
  // Replaces the schedule of a batch, its digest, and lets it go on if it had ended.
  absl::Status ReplaceSchedule(const Batch& batch, const Schedule& schedule);
  // Returns all schedules, also those that have ended, by the ids of their batches.
  absl::StatusOr<std::map<std::string, Schedule>> Schedules();
  // Makes the entry that `seen` owes, in one transaction: however many processes do this at once,
  // and wherever one is killed, each time makes one entry at most. `next_ms` is the time after it.
  // `make` returns the entry with this name. Without `overlap` no entry is made, and the time goes
  // by, while an earlier one is not over. Returns false when nothing was made.
  absl::StatusOr<bool> MakeDue(
      const Schedule& seen, const std::string& batch_name, int64_t next_ms,
      const std::function<absl::StatusOr<Entry>(const std::string& name)>& make);
  // Ends the batch's schedule, if it has one that lives. Returns whether it had.
  absl::StatusOr<bool> EndSchedule(absl::string_view batch_id);

  // Replaces the limits of a batch and adds hosts that it lacks.
  absl::Status SetLimits(const Batch& batch);

  // Lists batches, oldest first; `open_only`: only those of which an entry may still start or runs.
  absl::StatusOr<std::vector<Batch>> List(bool open_only);
  // Returns those of these names that there are, in the order of List.
  absl::StatusOr<std::vector<Batch>> Named(const std::vector<std::string>& names);
  // Returns the batch with this id. NOT_FOUND when it is gone.
  absl::StatusOr<Batch> WithId(absl::string_view batch_id);
  // Finds a batch by its name. NOT_FOUND (usage) names the nearest.
  absl::StatusOr<Batch> Get(absl::string_view name);
  absl::StatusOr<std::vector<Entry>> Entries(absl::string_view batch_id);
  // Finds an entry by its name or id; nothing when there is none.
  absl::StatusOr<std::optional<Entry>> FindEntry(absl::string_view reference);
  absl::StatusOr<std::vector<Attempt>> Attempts(absl::string_view batch_id);
  // Returns how many entries of each batch wait, by the batch's name; none for a batch without.
  absl::StatusOr<std::map<std::string, int64_t>> Waiting();
  // What people see of an entry that waits.
  struct WaitingEntry {
    std::string entry_id, name, batch;
    Parameters parameters;
    std::string why;  // "" when no pass has looked at it yet
  };
  // Returns the entries that wait, those of the oldest batches first, at most `most` of them.
  absl::StatusOr<std::vector<WaitingEntry>> ListWaiting(int most);
  // Returns the parameters of a run that a batch started; none for any other.
  absl::StatusOr<Parameters> ParametersOf(absl::string_view run_id);
  // Returns the entries that a process claimed, of all batches.
  absl::StatusOr<std::vector<Entry>> Starting();

  // Claims a waiting entry. Nobody else starts it from then on. Call it with the entry's lock.
  // FAILED_PRECONDITION, and nothing changes, when the entry does not wait any more, when the batch
  // has as many live entries as it may have, or when the machine has another live run;
  // RESOURCE_EXHAUSTED when the batch's cost limit does not allow it.
  absl::Status Claim(const ClaimRequest& request);
  // Notes that the run of an entry that is being started is to be stopped: whoever settles its
  // claim (client/dispatch/settle_claims.h) does that. Returns false when it is not being started.
  absl::StatusOr<bool> WishStop(absl::string_view entry_id);
  absl::StatusOr<bool> IsStopWished(absl::string_view run_id);
  // Records that a node has the entry's run.
  absl::Status MarkStarted(absl::string_view entry_id, absl::string_view run_id);
  // Records that another run goes on from the entry's run `before`.
  absl::Status Follow(absl::string_view entry_id, absl::string_view before,
                      absl::string_view run_id);
  // Records that nobody resumes the entry's run: the entry is over with the end that the run has.
  absl::Status EndResumes(absl::string_view entry_id, absl::string_view run_id);
  // Records what became of an entry's run, for the time when the run is not in the list any more.
  absl::Status SetOutcomes(const std::vector<Entry>& entries);
  // Lets a claimed or started entry wait again, not before `not_before_ms`: nothing of it runs.
  // `failed`: the start failed in a way that may be the entry's own fault. Does nothing when the
  // entry has another run by now. One whose stop was wished, or that was called off, is cancelled
  // instead.
  absl::Status Release(absl::string_view entry_id, absl::string_view run_id, absl::string_view why,
                       int64_t not_before_ms, bool failed);
  // Ends a waiting entry with kFailed or kCancelled. Returns false when it does not wait any more.
  absl::StatusOr<bool> EndWaiting(absl::string_view entry_id, EntryState state,
                                  absl::string_view why);
  // Cancels those of these entries that wait, all at once. Returns their number. One that is being
  // started or runs goes on, and is cancelled when that start comes to nothing.
  absl::StatusOr<int> CancelWaiting(const std::vector<std::string>& entry_ids,
                                    absl::string_view why);
  // Notes why an entry waits, and until when. `failed` as for Release. Does nothing when it does
  // not wait any more.
  absl::Status SetWaiting(absl::string_view entry_id, absl::string_view why, int64_t not_before_ms,
                          bool failed);
  // Takes a batch whose entries are all over out of the list, with its schedule, entries and
  // attempts, and its name is free again. FAILED_PRECONDITION, and nothing changes, when an entry
  // of it waits or is live, when its schedule goes on, or when an entry of another batch waits for
  // one of its entries; NOT_FOUND when there is no such batch.
  absl::Status Forget(absl::string_view batch_id);
  // Records a failure (`why`) of a host, when it is tried again, and the number of failures, so
  // that several starts that fail at once count once. Without failures it is in order.
  absl::Status SetHost(absl::string_view batch_id, absl::string_view target_name,
                       absl::string_view why, int64_t not_before_ms, int failures);

 private:
  explicit BatchStore(sqlite3* database) : database_(database) {}
  absl::StatusOr<bool> HasColumn(absl::string_view name);
  absl::Status AddColumn(absl::string_view name, const char* statement);
  absl::Status InTransaction(const std::function<absl::Status()>& work);
  absl::Status InsertEntries(const std::string& batch_id, const std::vector<Entry>& entries);
  absl::Status InsertLocked(const Batch& batch, const std::vector<Entry>& entries);
  absl::StatusOr<ReplacedBatch> MakeRoomLocked(const std::string& name, absl::string_view id);
  absl::Status ClaimLocked(const ClaimRequest& request);
  absl::Status CheckForgettable(absl::string_view batch_id);
  absl::Status CheckMachineIsFree(const ClaimRequest& request);
  absl::StatusOr<std::vector<Entry>> Select(const char* where, absl::string_view value);
  absl::Status ReadHosts(Batch& batch);
  absl::StatusOr<std::vector<Batch>> SelectBatches(absl::string_view where,
                                                   std::optional<absl::string_view> value);
  sqlite3* database_;
};

// Returns the lock file of an entry below the state directory; the process that starts it holds it.
std::string EntryLockPath(absl::string_view state_dir, absl::string_view entry_id);

// Returns the file there that has the errors of the processes that start an entry.
std::string EntryLogPath(absl::string_view state_dir, absl::string_view entry_id);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BATCH_BATCH_STORE_H_
