// A batch made out of the command line of gpuctl submit, before it is stored.
#ifndef GPUCTL_CLIENT_VERBS_SUBMISSION_H_
#define GPUCTL_CLIENT_VERBS_SUBMISSION_H_

#include <algorithm>
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/batch/batch_plan.h"
#include "client/batch/batch_store.h"
#include "client/market/holdings.h"
#include "client/plan/launch_flags.h"
#include "client/plan/launch_plan.h"
#include "client/rent/join_machine.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "client/spec/launch_record.h"

namespace gpuctl {

struct SubmitFlags {
  LaunchFlags launch;
  std::vector<std::string> files, sweep, hosts, after;
  std::string csv, name, max_cost, every;
  int sample = 0, seed = 0, max_parallel = 0, max_failures = 0, priority = 0;
  bool sampled = false, seeded = false, overlap = false, replace = false, array = false;
};

// A run file, or the command line alone, with the runs that are made of it.
struct Source {
  std::string file;  // as typed; "" for none
  std::string name;  // of the run file's name:, or the file's own
  LaunchPlan plan;   // without parameters
  LaunchRecord record;
  std::vector<std::string> after;
  std::string every;
};

// Returns the error for a batch that cannot be submitted under the name of `stored`; it tells a
// name that is free. `replaceable`: --replace would help.
absl::Status RunsSomethingElse(BatchStore& batches, const Batch& stored, bool replaceable);

// Makes the batch and its entries out of the command line.
class Submission {
 public:
  Submission(CommandContext& context, Holdings& holdings, RunStore& runs, BatchStore& batches,
             SubmitFlags flags)
      : context_(context),
        holdings_(holdings),
        runs_(runs),
        batches_(batches),
        flags_(std::move(flags)) {}

  // Reads and checks everything, also against the batch of the same name, if there is one. Errors
  // are for the user.
  absl::Status Plan();

  bool rents() const { return batch_.rents; }
  const Batch& batch() const { return batch_; }
  Batch& batch() { return batch_; }
  const std::vector<Entry>& entries() const { return entries_; }
  const std::optional<Schedule>& schedule() const { return schedule_; }
  const SubmitFlags& flags() const { return flags_; }
  const Source& first() const { return sources_.front(); }
  // The batch of the same name and content that was submitted before.
  const std::optional<BatchView>& before() const { return before_; }
  // True when that one has nothing left to do. A schedule that ended goes on.
  bool is_over() const {
    return before_.has_value() && before_->over() && !schedule_.has_value() && !replaces_;
  }
  // True when the batch takes the name of before(), which runs something else or is over.
  bool replaces() const { return replaces_; }

  // True when the batch is stored already, and nothing that costs money is allowed beyond what was
  // agreed to then.
  bool AgreedBefore() const;

  // Returns the most that all may cost, in USD.
  double MostCost() const {
    return batch_.max_cost_usd.has_value() ? std::min(*batch_.max_cost_usd, bound_usd_)
                                           : bound_usd_;
  }

  // Returns the plan as lines for people, wrapped to `columns`; 0: none is.
  std::vector<std::string> Text(int columns) const;
  // Returns what it costs, where it runs, and what is lost: those lines of the plan.
  std::vector<std::string> Terms(int columns) const;
  // Returns "plan" of the JSON (docs/json.md).
  nlohmann::ordered_json ToJson() const;

 private:
  absl::Status ReadHosts();
  absl::Status AddSource(const std::string& file);
  absl::Status FindBefore();
  absl::Status CheckBefore();
  absl::Status NumberOn();
  absl::Status CheckMachines() const;
  bool RunsLater(const Source& source) const;
  absl::Status MakeBatch();
  absl::Status MakeSchedule(const std::vector<Parameters>& parameters);
  absl::Status MakeEntries(const std::vector<Parameters>& parameters);
  absl::Status CheckShared() const;
  // Decides whether the runs become tasks of an array.
  absl::Status PlanArray();
  absl::Status CheckArrayFlags() const;
  // Returns FAILED_PRECONDITION with why they cannot; other errors where that is not known.
  absl::Status WhyNoArray() const;
  void AddArray(std::vector<std::string>& lines) const;
  absl::Status SetMoney();
  // Without `of_a_run` the plan of each run has the parts of its cost.
  void AddMoney(bool of_a_run, std::vector<std::string>& lines) const;
  void AddScarcity(std::vector<std::string>& lines) const;
  void AddReplaced(std::vector<std::string>& lines) const;
  void AddUnknownNames(std::vector<std::string>& lines) const;
  void AddUnusedNames(std::vector<std::string>& lines) const;
  void AddTightness(std::vector<std::string>& lines) const;
  // Returns how many runs of the batch fit on one machine that is rented for it.
  int RunsOnOne() const;
  // Returns the plan of each run file, or of the command alone.
  void AddPlans(int columns, std::vector<std::string>& lines) const;
  // Returns who shares a machine; "" when each run has one for itself.
  std::string DescribeSharing() const;
  // Returns how many may run at once.
  int Parallel() const;
  absl::StatusOr<std::vector<std::string>> Resolve(const std::vector<std::string>& names);

  CommandContext& context_;
  Holdings& holdings_;
  RunStore& runs_;
  BatchStore& batches_;
  SubmitFlags flags_;
  std::vector<Source> sources_;
  std::vector<BatchHost> hosts_;
  std::optional<NamedMachine> on_;  // of --on
  Batch batch_;
  std::optional<BatchView> before_;
  bool replaces_ = false;
  std::string one_by_one_;  // why there is no array although one was asked for; "" otherwise
  std::vector<Entry> entries_;
  std::vector<std::vector<std::string>> after_;  // of each entry, the names as typed
  std::optional<Schedule> schedule_;
  // In USD: what one run may cost, all together, and the part of each for salvage.
  double one_usd_ = 0, bound_usd_ = 0, bound_salvage_usd_ = 0;
  LeaseLimits one_limits_;  // of the run that may cost most, at that price
  double one_usd_per_hour_ = 0;
  absl::Duration one_grace_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_SUBMISSION_H_
