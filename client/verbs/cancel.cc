// gpuctl cancel: takes runs out of a batch.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/dispatch/dispatch_pass.h"
#include "client/dispatch/settle_claims.h"
#include "client/follow/stop_run.h"
#include "client/market/holdings.h"
#include "client/terminal/console.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "provisioning/market/provider.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

// A start that takes longer, such as that of a rented machine, is left alone.
constexpr absl::Duration kStartPatience = absl::Minutes(2);
constexpr absl::Duration kLookEvery = absl::Milliseconds(200);

class Canceller {
 public:
  Canceller(CommandContext& context, RunStore& runs, BatchStore& batches, bool running, bool wait)
      : context_(context), runs_(runs), batches_(batches), running_(running), wait_(wait) {}

  // Finds the entries that a name means: those of a batch, or one.
  absl::Status Find(const std::string& name) {
    if (const absl::StatusOr<Batch> batch = batches_.Get(name); batch.ok()) {
      ASSIGN_OR_RETURN(const std::vector<Entry> entries, batches_.Entries(batch->batch_id));
      for (const Entry& entry : entries) ids_.push_back(entry.entry_id);
      batch_ids_.push_back(batch->batch_id);
      return absl::OkStatus();
    } else {
      ASSIGN_OR_RETURN(const std::optional<Entry> entry, batches_.FindEntry(name));
      if (!entry.has_value()) return batch.status();
      ids_.push_back(entry->entry_id);
    }
    return absl::OkStatus();
  }

  // Cancels all that wait before it stops one that runs: else the next would start meanwhile.
  absl::Status Cancel() {
    for (const std::string& id : batch_ids_) {
      ASSIGN_OR_RETURN(const bool ended, batches_.EndSchedule(id));
      schedules_ += ended ? 1 : 0;
      // One that came meanwhile.
      ASSIGN_OR_RETURN(const std::vector<Entry> entries, batches_.Entries(id));
      for (const Entry& entry : entries) {
        if (std::find(ids_.begin(), ids_.end(), entry.entry_id) == ids_.end()) {
          ids_.push_back(entry.entry_id);
        }
      }
    }
    ASSIGN_OR_RETURN(cancelled_, batches_.CancelWaiting(ids_, kCancelledByUser));
    context_.tells_what_waits = ids_.size() < 2;
    absl::Status error;
    for (const std::string& id : ids_) error.Update(End(id));
    return error;
  }

  absl::StatusOr<CancelledEntries> Result() {
    CancelledEntries result = {schedules_, cancelled_, stopped_, left_, {}};
    for (const std::string& id : ids_) {
      ASSIGN_OR_RETURN(std::optional<Entry> entry, batches_.FindEntry(id));
      if (!entry.has_value()) continue;
      const absl::StatusOr<RunRow> run = runs_.Get(entry->run_id);
      result.views.push_back(
          ViewOf(*std::move(entry), run.ok() ? std::optional<RunRow>(*run) : std::nullopt));
    }
    return result;
  }

 private:
  // Ends what is not waiting any more.
  absl::Status End(const std::string& id) {
    const absl::Duration begin = context_.clock.SinceBoot();
    while (true) {
      ASSIGN_OR_RETURN(const std::optional<Entry> entry, batches_.FindEntry(id));
      if (!entry.has_value()) return absl::OkStatus();
      if (entry->state == EntryState::kWaiting) {
        // Its start failed meanwhile.
        ASSIGN_OR_RETURN(const bool waited,
                         batches_.EndWaiting(id, EntryState::kCancelled, kCancelledByUser));
        cancelled_ += waited ? 1 : 0;
        if (waited) return absl::OkStatus();
        continue;
      }
      if (entry->state == EntryState::kStarted) return Stop(*entry);
      if (entry->state != EntryState::kStarting) return absl::OkStatus();
      if (!running_) {
        ++left_;
        return absl::OkStatus();
      }
      // Whoever starts it stops it then, also when this process does not live so long.
      RETURN_IF_ERROR(batches_.WishStop(id).status());
      // Its job may have begun, and be in its setup.
      const absl::StatusOr<RunRow> row = runs_.Get(entry->run_id);
      if (row.ok() && row->accepted_ms > 0 && !row->end.has_value()) {
        RETURN_IF_ERROR(Stop(*entry));
        if (!wait_) return absl::OkStatus();
      }
      RETURN_IF_ERROR(SettleClaims(context_, runs_, batches_));
      ASSIGN_OR_RETURN(const std::optional<Entry> now, batches_.FindEntry(id));
      if (!now.has_value() || now->state != EntryState::kStarting) continue;
      if (!wait_) {
        ++left_;
        return absl::OkStatus();
      }
      if (context_.clock.SinceBoot() - begin > kStartPatience) {
        ++left_;
        return absl::UnavailableError(absl::StrCat(
            entry->name, " is still being started; it is stopped as soon as it has started"));
      }
      context_.clock.SleepFor(kLookEvery);
    }
  }

  absl::Status Stop(const Entry& entry) {
    absl::StatusOr<RunRow> row = runs_.Get(entry.run_id);
    if (!row.ok() || row->end.has_value()) return absl::OkStatus();
    if (!running_ && !WaitsInScheduler(*row)) {
      ++left_;
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(StopRun(context_, runs_, *row, wait_));
    ++stopped_;
    return absl::OkStatus();
  }

  // True when the scheduler of its cluster has not started the run's allocation.
  bool WaitsInScheduler(const RunRow& row) {
    if (row.target.provider != kClusterProvider) return false;
    if (!waiting_.has_value()) {
      waiting_.emplace();
      const Holdings holdings(context_);
      const absl::StatusOr<std::vector<Market>> markets =
          holdings.Open({std::string(kClusterProvider)});
      if (!markets.ok()) return false;
      const absl::StatusOr<std::vector<Instance>> listed =
          markets->front().provider->ListInstances();
      for (const Instance& instance : listed.ok() ? *listed : std::vector<Instance>()) {
        if (instance.state == Instance::State::kStarting) waiting_->insert(instance.id);
      }
    }
    return waiting_->count(std::string(
               absl::StripPrefix(row.target.name, absl::StrCat(kClusterProvider, "/")))) > 0;
  }

  CommandContext& context_;
  RunStore& runs_;
  BatchStore& batches_;
  const bool running_, wait_;
  std::optional<std::set<std::string>> waiting_;  // in the scheduler's queue, once it was asked
  std::vector<std::string> ids_, batch_ids_;
  int schedules_ = 0, cancelled_ = 0, stopped_ = 0, left_ = 0;
};

}  // namespace

absl::StatusOr<CancelledEntries> CancelEntries(CommandContext& context, RunStore& runs,
                                               BatchStore& batches,
                                               const std::vector<std::string>& names, bool running,
                                               bool wait) {
  Canceller canceller(context, runs, batches, running, wait);
  for (const std::string& name : names) RETURN_IF_ERROR(canceller.Find(name));
  RETURN_IF_ERROR(canceller.Cancel());
  return canceller.Result();
}

absl::StatusOr<int> CmdCancel(CommandContext& context, std::vector<std::string> args) {
  std::vector<std::string> names;
  bool running = false;
  VerbParser parser(context, "cancel BATCH... [FLAGS]",
                    "Takes runs out of a batch: those that wait are not started any more. Takes\n"
                    "names of batches and of single entries.",
                    "  gpuctl cancel sweep\n  gpuctl cancel sweep-3 sweep-4 --running");
  parser.Option("BATCH", names, "Name of a batch, or of an entry of one").Required();
  parser.Switch("--running", running, "Also stop those that run, with time to save");
  bool yes = false;  // it asks nothing
  parser.Switch("-y,--yes", yes, "").Hidden();
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(RunStore * runs, context.Store());
  ASSIGN_OR_RETURN(const std::unique_ptr<BatchStore> batches, OpenBatches(context));
  ASSIGN_OR_RETURN(const CancelledEntries done,
                   CancelEntries(context, *runs, *batches, names, running));
  if (context.json()) {
    std::vector<nlohmann::ordered_json> objects;
    for (const EntryView& view : done.views) objects.push_back(EntryToJson(view));
    context.PrintJsonList("entries", objects);
    return kExitOk;
  }
  if (done.schedules > 0) context.Say("its schedule ended: no run is started any more");
  context.Say(absl::StrCat("cancelled: ", done.cancelled, ", stopped: ", done.stopped));
  if (done.left > 0) {
    context.Say(absl::StrCat("still running or being started: ", done.left));
    context.Hint("--running stops them too");
  }
  return kExitOk;
}

}  // namespace gpuctl
