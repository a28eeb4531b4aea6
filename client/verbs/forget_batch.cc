#include "client/verbs/forget_batch.h"

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/dispatch/dispatch_pass.h"
#include "client/market/instance_target.h"
#include "client/verbs/batch_text.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

// Returns why the batch cannot be forgotten now.
absl::Status CheckIsOver(Holdings& holdings, BatchStore& batches, const BatchView& view) {
  const std::string& name = view.batch.name;
  if (view.schedule.has_value() && !view.schedule->ended) {
    return WithHint(absl::FailedPreconditionError("its schedule goes on"),
                    absl::StrCat("gpuctl cancel ", name,
                                 " ends it; gpuctl rm --forget RUN takes "
                                 "one run of it out of the list"));
  }
  for (const EntryView& entry : view.entries) {
    if (entry.over()) continue;
    return WithHint(
        absl::FailedPreconditionError(absl::StrCat(
            entry.entry.name, entry.phase == EntryPhase::kWaiting ? " waits" : " is not over")),
        absl::StrCat("gpuctl cancel --running ", name, " ends what is not over of it"));
  }
  ASSIGN_OR_RETURN(const std::vector<Lease> leases, OpenLeasesOf(holdings, batches, view.batch));
  if (leases.empty()) return absl::OkStatus();
  const Lease& lease = leases.front();
  return WithHint(absl::FailedPreconditionError(absl::StrCat(
                      lease.instance_id.empty() ? lease.label
                                                : RentedNodeName(lease.provider, lease.instance_id),
                      leases.size() > 1 ? absl::StrCat(" and ", leases.size() - 1, " more") : "",
                      " may bill for it")),
                  absl::StrCat("gpuctl down --batch ", name, " ends that"));
}

absl::Status StaysInTheList(const std::string& run_name) {
  return absl::FailedPreconditionError(absl::StrCat("its run ", run_name, " stays in the list"));
}

}  // namespace

absl::StatusOr<std::vector<ForgottenBatch>> TakeBatchesToForget(
    CommandContext& context, Holdings& holdings, std::vector<std::string>& references) {
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  ASSIGN_OR_RETURN(const std::unique_ptr<BatchStore> batches, OpenBatches(context));
  std::vector<ForgottenBatch> found;
  std::vector<std::string> others;
  std::set<std::string> seen;
  for (std::string& reference : references) {
    absl::StatusOr<Batch> batch = batches->Get(reference);
    if (!batch.ok()) {
      others.push_back(std::move(reference));
      continue;
    }
    if (!seen.insert(batch->batch_id).second) continue;
    ASSIGN_OR_RETURN(const std::vector<BatchView> views,
                     ReadBatches(*store, *batches, {batch->name}, /*open_only=*/false));
    if (views.empty()) return absl::NotFoundError(absl::StrCat("batch ", batch->name, " is gone"));
    ForgottenBatch& forgotten = found.emplace_back();
    forgotten.batch = *std::move(batch);
    RETURN_IF_ERROR(Annotate(CheckIsOver(holdings, *batches, views.front()),
                             absl::StrCat("forget batch ", forgotten.batch.name)));
    // Those that its entries began with, too.
    ASSIGN_OR_RETURN(const std::vector<Attempt> attempts,
                     batches->Attempts(forgotten.batch.batch_id));
    std::multimap<std::string, std::string> run_ids;  // by the entry's id
    for (const Attempt& attempt : attempts) run_ids.emplace(attempt.entry_id, attempt.run_id);
    for (const EntryView& entry : views.front().entries) {
      const auto [first, last] = run_ids.equal_range(entry.entry.entry_id);
      for (auto run = first; run != last; ++run) {
        const absl::StatusOr<RunRow> row = store->Get(run->second);
        if (row.ok()) forgotten.run_ids.push_back(run->second);
        if (!row.ok() && !absl::IsNotFound(row.status())) return row.status();
      }
    }
  }
  references = std::move(others);
  return found;
}

absl::Status AgreeToForget(CommandContext& context, const std::vector<ForgottenBatch>& batches) {
  if (batches.empty()) return absl::OkStatus();
  size_t runs = 0;
  for (const ForgottenBatch& one : batches) runs += one.run_ids.size();
  const std::string which = batches.size() == 1 ? absl::StrCat("batch ", batches.front().batch.name)
                                                : absl::StrCat(batches.size(), " batches");
  ASSIGN_OR_RETURN(
      const bool agreed,
      context.AskYesNo(absl::StrCat("Forget ", which, ", its ", runs, runs == 1 ? " run" : " runs",
                                    " and the copies of their output here?"),
                       "nothing was removed",
                       "rm asks before it forgets a batch, and there is nobody to ask"));
  if (agreed) return absl::OkStatus();
  return WithExitCode(absl::CancelledError("nothing was removed"), kExitFailed);
}

void ForgetBatch(CommandContext& context, RunStore& store, ForgottenBatch& forgotten) {
  for (const std::string& run_id : forgotten.run_ids) {
    const absl::StatusOr<RunRow> row = store.Get(run_id);
    if (absl::IsNotFound(row.status())) continue;
    forgotten.why = row.ok() ? StaysInTheList(row->name) : row.status();
    return;
  }
  const absl::StatusOr<std::unique_ptr<BatchStore>> batches = OpenBatches(context);
  forgotten.why = batches.ok() ? (*batches)->Forget(forgotten.batch.batch_id) : batches.status();
  if (absl::IsNotFound(forgotten.why)) forgotten.why = absl::OkStatus();
}

void JudgeBatch(const std::vector<RunRemoval>& removals, ForgottenBatch& forgotten) {
  for (const RunRemoval& removal : removals) {
    const RunRow& row = removal.row;
    const std::string& run_id = row.leader.empty() ? row.run_id : row.leader;
    const auto& ids = forgotten.run_ids;
    if (removal.why.ok() || std::find(ids.begin(), ids.end(), run_id) == ids.end()) continue;
    forgotten.why = StaysInTheList(row.name);
    return;
  }
}

void TellOfForgotten(CommandContext& context, const std::vector<ForgottenBatch>& batches,
                     bool dry_run, bool not_home) {
  for (const ForgottenBatch& one : batches) {
    if (!one.why.ok()) {
      context.Warn(absl::StrCat("batch ", one.batch.name, " stays: ", one.why.message()));
      if (!not_home) continue;
      context.Hint(absl::StrCat("gpuctl pull --batch ", one.batch.name,
                                " brings what its runs name; gpuctl rm --forget --force ",
                                one.batch.name, " does without what is not at home"));
    } else {
      context.Say(absl::StrCat("batch ", one.batch.name,
                               dry_run ? " would be forgotten" : " is forgotten"));
    }
  }
}

nlohmann::ordered_json ForgottenToJson(const std::vector<ForgottenBatch>& batches, bool dry_run) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ForgottenBatch& one : batches) {
    const char* action = !one.why.ok() ? "kept" : dry_run ? "would_forget" : "forgotten";
    list.push_back({{"batch_id", one.batch.batch_id},
                    {"name", one.batch.name},
                    {"action", action},
                    {"why", one.why.ok() ? nlohmann::ordered_json()
                                         : nlohmann::ordered_json(one.why.message())}});
  }
  return list;
}

}  // namespace gpuctl
