// What one run of a batch launches: the batch's launch with the run's parameters in it. Pure.
#ifndef GPUCTL_CLIENT_BATCH_ENTRY_SPEC_H_
#define GPUCTL_CLIENT_BATCH_ENTRY_SPEC_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/batch/parameters.h"
#include "client/spec/launch_record.h"

namespace gpuctl {

// A parameter of this form is a setting of the built-in trainer: "trainer.optimizer.lr".
inline constexpr char kTrainerParameter[] = "trainer.";

// Returns `text` with the value of each parameter in place of its {name}. Other braces stay. Values
// are not searched again.
std::string FillIn(absl::string_view text, const Parameters& parameters);

// Returns the words in braces in the command of `spec` that look like parameters and are none of
// `parameters`: {rnk} where there is rank. In a script only those beside which the shell has no
// meaning of its own, so not ${HOME}.
std::vector<std::string> NamesWithoutValue(const RunSpec& spec, const Parameters& parameters);

// Returns the parameters that are nowhere in `spec`: neither {lr}, nor its variable LR in the
// command or a script. What the job's own files read is not known here. Settings of the built-in
// trainer are used, and so is a parameter whose name is its variable.
std::vector<std::string> NamesWithoutUse(const RunSpec& spec, const Parameters& parameters);

// Returns `record` under the name `name`, with the parameters filled into run, command, values of
// env, checkpoints and artifacts, each in an environment variable (VariableOf), and those of the
// trainer in its settings. INVALID_ARGUMENT for what no run may have.
absl::StatusOr<LaunchRecord> WithParameters(LaunchRecord record, const std::string& name,
                                            const Parameters& parameters);

// Returns the GPUs of the smallest machine that the spec asks for; 0 when it names none.
int RentedGpus(const RunSpec& spec);

// Returns what a run with this number of GPUs (Entry::gpus) takes of a machine that it shares, in
// GPUs: one without any needs processors all the same.
int ShareOfMachine(int gpus);

// Returns the digest, 64 hex digits, of what a batch runs: each entry's launch, in order.
std::string BatchDigest(const std::vector<std::string>& launches);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BATCH_ENTRY_SPEC_H_
