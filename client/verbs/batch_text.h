// Batches and their entries as tables and JSON.
#ifndef GPUCTL_CLIENT_VERBS_BATCH_TEXT_H_
#define GPUCTL_CLIENT_VERBS_BATCH_TEXT_H_

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/batch/batch_budget.h"
#include "client/batch/batch_plan.h"
#include "client/batch/batch_store.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"

namespace gpuctl {

// Returns the store of batches, in the database of the list of runs, which is opened first.
absl::StatusOr<std::unique_ptr<BatchStore>> OpenBatches(CommandContext& context);

// Returns the money of a batch according to the ledger.
absl::StatusOr<BatchMoney> MoneyOfBatch(CommandContext& context, Holdings& holdings,
                                        BatchStore& batches, const Batch& batch);

// Returns the leases of a batch's runs that are open, in the order of their beginning.
absl::StatusOr<std::vector<Lease>> OpenLeasesOf(Holdings& holdings, BatchStore& batches,
                                                const Batch& batch);

// Tells of each machine that is rented for a batch, once: passes do so in processes of their own,
// whose words nobody hears.
class RentalNews {
 public:
  // What was rented before is not told. All arguments outlive it.
  RentalNews(CommandContext& context, Holdings& holdings, BatchStore& batches, const Batch& batch);
  // Says on stderr what was rented since the last call, with its price.
  void Tell();

 private:
  CommandContext& context_;
  Holdings& holdings_;
  BatchStore& batches_;
  const Batch& batch_;
  const int64_t begun_ms_;
  std::set<std::string> told_;  // lease ids
};

// Says which machines of a batch that is over bill on, and how to end that. Returns them as JSON
// (docs/json.md).
nlohmann::ordered_json TellWhatBatchBills(CommandContext& context, Holdings& holdings,
                                          RunStore& runs, BatchStore& batches, const Batch& batch);

// Says that the schedules go on to which these runs belong. `run_ids`: of the runs that a user has
// ended.
void TellOfSchedules(CommandContext& context, const std::set<std::string>& run_ids);

// Returns the digest of what the entry's run got of its work directory; "" when that is not known,
// or nothing was sent.
std::string ContentOf(RunStore& runs, const EntryView& view);

// Marks the entries whose run got other files of its work directory than the first run that was
// started from there. A schedule's runs are meant to differ, and are not marked.
void MarkOtherContent(RunStore& runs, std::vector<BatchView>& views);

// Says which entries are marked, if any are.
void TellOfOtherContent(CommandContext& context, const BatchView& view);

// Returns the entry's name with its mark, for a table.
std::string MarkedName(const EntryView& view);

// Returns the number of entries in a phase.
int CountOf(const BatchView& view, EntryPhase phase);

// Return JSON objects (docs/json.md).
nlohmann::ordered_json BatchToJson(const BatchView& view, const BatchMoney& money);
nlohmann::ordered_json EntryToJson(const EntryView& view);
nlohmann::ordered_json ParametersToJson(const Parameters& parameters);

// Return tables with their heads.
std::vector<TableRow> BatchTable(CommandContext& context, const std::vector<BatchView>& views,
                                 const std::vector<BatchMoney>& money);
std::vector<TableRow> EntryTable(const BatchView& view);

// Returns "2 running, 4 waiting, 1 done".
std::string DescribeCounts(const BatchView& view);

// Says why no more runs of the batch start, if that is so.
void TellOfGivingUp(CommandContext& context, const BatchView& view);

// Says how many entries are not over, so that the best run may yet be another; nothing when all
// are.
void TellOfOpenEntries(CommandContext& context, const std::vector<BatchView>& views);

// Makes one pass over all batches in a process of its own: learns what became of runs, and starts
// what may start. Starts that take longer than `patience` go on by themselves. A signal that makes
// `signal_fd` readable ends the pass. Returns its JSON.
absl::StatusOr<nlohmann::json> MakePass(absl::Duration patience, int signal_fd = -1);

// Returns "2026-11-27 03:00", in this computer's time zone.
std::string LocalTimeText(int64_t ms);
// Returns "every 0 3 * * *, next 2026-11-27 03:00", and why the last time went by without a run.
std::string DescribeSchedule(const Schedule& schedule);

// An error when one of `references` is the name of a batch, which the verb would take for its
// newest run alone; of a schedule, and of a batch of one run, that is what the user means. `how`
// tells what there is for a whole batch, with $ in place of its name.
absl::Status CheckNoBatch(CommandContext& context, const std::vector<std::string>& references,
                          absl::string_view how);

// Puts the ids of a batch's runs, in their order, in the place of its name; other references, and
// names of schedules, stay. FAILED_PRECONDITION when no run of a batch has started.
absl::StatusOr<std::vector<std::string>> WithRunsOfBatches(
    CommandContext& context, const std::vector<std::string>& references);

// Returns the command that shows the batch which `reference`, the name of no run, seems to mean:
// its name, that of a run that it does not have, or one that is nearly that. "" when there is none.
std::string HintForBatch(CommandContext& context, absl::string_view reference);

// Returns the entry of a batch that `reference` names, if it has no run: it waits, is being
// started, or did not start. Nothing for any other reference.
absl::StatusOr<std::optional<Entry>> FindUnstarted(CommandContext& context,
                                                   const std::string& reference);

// Says why an entry that FindUnstarted found has no run.
std::string DescribeUnstarted(const Entry& entry);

// FAILED_PRECONDITION, which says why, when one of `references` is an entry of a batch that never
// had a run.
absl::Status CheckStarted(CommandContext& context, const std::vector<std::string>& references);

// What came of taking entries out of their batches.
struct CancelledEntries {
  int schedules = 0, cancelled = 0, stopped = 0;  // how many were ended
  int left = 0;                                   // of those that still run or are being started
  std::vector<EntryView> views;
};

// Cancels what waits of these batches and entries. With `running`, also stops what runs, with time
// to save; without `wait` it returns once that is sure to happen. An error when a name is neither
// of a batch nor of an entry.
absl::StatusOr<CancelledEntries> CancelEntries(CommandContext& context, RunStore& runs,
                                               BatchStore& batches,
                                               const std::vector<std::string>& names, bool running,
                                               bool wait = true);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_BATCH_TEXT_H_
