// The runs as the page lists them: live ones are followed, ended ones read from the list of runs,
// and those that a batch will start are read from its store.
#ifndef GPUCTL_CLIENT_DASHBOARD_RUN_LIST_H_
#define GPUCTL_CLIENT_DASHBOARD_RUN_LIST_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/batch/batch_store.h"
#include "client/bill/run_machines.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "client/top/top_run.h"
#include "provisioning/ledger/lease.h"

namespace gpuctl {

class RunList {
 public:
  static constexpr int kLinksAtOnce = 16;
  // The ended runs that the page gets without asking: the newest.
  static constexpr int kNewest = 200;
  static constexpr size_t kMostAtOnce = 200;
  // The waiting runs of batches that the page gets.
  static constexpr int kMostWaiting = 100;

  // All outlive it.
  RunList(CommandContext& context, RunStore& store, Holdings& holdings);

  // Looks what there is, where that is due, and goes on with the links to live runs.
  absl::Status Step();
  // Descriptors that are readable when a run has news.
  std::vector<int> wake_fds() const;
  // What the user is to hear, since the last call.
  std::vector<std::string> TakeNotices();
  // Ends all links. False when the thread of one does not end (see ExitAtOnce).
  bool Unlink();

  // What is shown beside each run. Strings are safe.
  struct Listed {
    std::string run_id;
    std::string json;  // one object
  };
  // Returns the runs that changed since the last call, and the ids of those that are gone.
  struct Changes {
    std::vector<Listed> changed;
    std::vector<std::string> gone;
  };
  Changes TakeChanges();
  // Returns all that the page gets without asking, live ones first, as of the last TakeChanges.
  std::vector<std::string> Snapshot() const;
  // Returns {"runs", "total", "matching"}: runs of the whole list, the newest first, from `offset`
  // on among those of which name, state, machine, command, tags or id have `filter` in them.
  absl::StatusOr<nlohmann::ordered_json> Search(const std::string& filter, size_t offset,
                                                size_t limit);
  // The number of all runs, a few seconds old at most.
  absl::StatusOr<int64_t> Total();
  // What all rented machines of live runs cost per hour, and how many runs live.
  nlohmann::ordered_json Totals() const;
  // Returns {"total", "entries"}: the runs of batches that wait, the first kMostWaiting with their
  // parameters and reasons. A few seconds old at most. Strings are safe.
  const std::string& Waiting() const { return waiting_; }

  // Returns a run with what only its own view shows.
  absl::StatusOr<nlohmann::ordered_json> Detail(const std::string& run_id);
  // Returns its row.
  absl::StatusOr<RunRow> Row(const std::string& run_id);

 private:
  absl::Status ReadList();
  absl::Status ReadLeases();
  absl::Status ReadMachines(Ledger& ledger, const RunRow& row);
  absl::Status ReadBatches();
  // Returns the store of batches; null when it cannot be opened.
  BatchStore* Batches();
  // Returns the parameters that a batch gave the run, as an object.
  nlohmann::ordered_json ParametersOf(const RunRow& row);
  nlohmann::ordered_json JsonOf(const RunRow& row, const RunStatus& status);
  nlohmann::ordered_json LiveJson(TopRunFollower& run);
  TopRunFollower* Live(const std::string& run_id) const;

  CommandContext& context_;
  RunStore& store_;
  Holdings& holdings_;
  std::vector<std::unique_ptr<TopRunFollower>> live_;  // those that ended stay
  std::map<std::string, RunRow> ended_;                // by id: the newest that are not in live_
  std::map<std::string, RunMachines> machines_;        // by run id
  std::map<std::string, std::pair<int64_t, std::string>> told_;  // by id: when created, its JSON
  std::unique_ptr<BatchStore> batches_;
  std::map<std::string, Parameters> parameters_;  // by run id, of runs that are in a batch
  std::string waiting_ = R"({"total":0,"entries":[]})";
  std::vector<std::string> notices_;
  absl::Duration batches_at_ = absl::ZeroDuration();
  absl::Duration list_at_ = absl::ZeroDuration(), leases_at_ = absl::ZeroDuration();
  absl::Duration total_at_ = absl::ZeroDuration();
  int64_t total_ = 0;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_DASHBOARD_RUN_LIST_H_
