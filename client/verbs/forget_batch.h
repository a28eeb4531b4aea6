// What gpuctl rm BATCH --forget does besides removing runs.
#ifndef GPUCTL_CLIENT_VERBS_FORGET_BATCH_H_
#define GPUCTL_CLIENT_VERBS_FORGET_BATCH_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/batch/batch_store.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"
#include "client/verbs/remove_runs.h"

namespace gpuctl {

// A batch that is to be forgotten.
struct ForgottenBatch {
  Batch batch;
  std::vector<std::string> run_ids;  // of all its starts, as far as the list of runs has them
  absl::Status why;                  // why it stays; OK when it does not
};

// Takes the names of batches out of `references` and returns those batches.
// FAILED_PRECONDITION, with what ends that, when a run of one waits or lives, its schedule goes on,
// or a machine of it may bill.
absl::StatusOr<std::vector<ForgottenBatch>> TakeBatchesToForget(
    CommandContext& context, Holdings& holdings, std::vector<std::string>& references);

// Asks before batches go. CANCELLED when the user does not want it, a usage error when nobody can
// be asked.
absl::Status AgreeToForget(CommandContext& context, const std::vector<ForgottenBatch>& batches);

// Takes the batch out of the list if none of its runs is in the list any more; else says in `why`
// what stays.
void ForgetBatch(CommandContext& context, RunStore& store, ForgottenBatch& forgotten);

// Says in `why` what would stay, from what is known of its runs.
void JudgeBatch(const std::vector<RunRemoval>& removals, ForgottenBatch& forgotten);

// Says on stderr what became of each batch. `not_home`: runs stay whose results are not at home.
void TellOfForgotten(CommandContext& context, const std::vector<ForgottenBatch>& batches,
                     bool dry_run, bool not_home);

// Returns them as JSON (docs/json.md).
nlohmann::ordered_json ForgottenToJson(const std::vector<ForgottenBatch>& batches, bool dry_run);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_FORGET_BATCH_H_
